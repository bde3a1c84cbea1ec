//! Any bytes as what a traced program and the tool tell each other: the control
//! file, the event table, channel configurations, filters, counters and ring headers.
#![no_main]

use kymo_ring::{AreaState, Context, Header};
use kymo_ust::{
    ChannelConfigView, Control, CounterRecord, CounterValue, CountersHeader, EventRecord, FieldTag,
    Fields, Filter, Shape, Slot, SlotState, compile,
};
use libfuzzer_sys::fuzz_target;

/// One field of each kind.
struct All;

const KINDS: [(FieldTag, u8, u32); 8] = [
    (FieldTag::Int, 4, 0),
    (FieldTag::Bool, 1, 0),
    (FieldTag::Float, 8, 0),
    (FieldTag::Enum, 2, 0),
    (FieldTag::Array, 1, 3),
    (FieldTag::String, 1, 0),
    (FieldTag::Sequence, 1, 0),
    (FieldTag::Symbol, 8, 0),
];

impl Fields for All {
    fn count(&self) -> usize {
        KINDS.len()
    }

    fn name(&self, index: usize) -> &[u8] {
        [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"][index]
    }

    fn shape(&self, index: usize) -> Shape {
        let (kind, size, count) = KINDS[index];
        Shape { kind, size, flags: 0, count }
    }
}

fn filter(bytes: &[u8], payload: &[u8]) {
    let Ok(filter) = Filter::parse(bytes) else { return };
    assert!(filter.names().count() <= bytes.len());
    let mut linked = vec![0; bytes.len() + 64];
    if let Ok(size) = filter.link(&All, &mut linked) {
        std::hint::black_box(Filter::run_linked(&linked[..size], &All, payload));
    }
}

/// A file of counters; what is behind the head stands for a record, a table and an area as well.
fn counters(data: &[u8], size: u64) {
    let Ok(header) = CountersHeader::parse(data, size.max(1 << 34)) else { return };
    assert!(header.area_at(header.area_count()) <= 1 << 34);
    assert!(header.record_at(header.counters) <= header.areas);
    let rest = &data[CountersHeader::BYTES..];
    let Ok(record) = CounterRecord::parse(rest, &header) else { return };
    let _ = CounterRecord::parse(&record.encode(), &header);
    let area = kymo_ust::COUNTER_AREA;
    assert!(record.value + record.kind.value_bytes() <= area);
    let keys = record.keys(rest);
    assert!(keys.len() <= record.kind.keys() as usize);
    assert!(keys.iter().all(|(_, at)| at + record.kind.value_bytes() <= area));
    let mut value = CounterValue::zero(record.kind);
    value.add_area(rest);
    let before = value.clone();
    value.add_area(data);
    value.add(&before);
    value.subtract(&before);
    std::hint::black_box(value.count());
}

fuzz_target!(|data: &[u8]| {
    let size = data.len() as u64;
    if let Ok(control) = Control::parse(data, size) {
        assert!(u64::from(control.table) + control.table_bytes <= size);
        let _ = Control::parse(&control.encode(), size);
    }
    if let Ok(slot) = Slot::parse(data) {
        std::hint::black_box(matches!(slot.state, SlotState::Free));
    }
    let (events, _) = EventRecord::parse_table(data);
    assert!(events.len() <= data.len() / 24);
    if let Ok(config) = ChannelConfigView::parse(data) {
        std::hint::black_box((config.session(), config.channel(), config.rule_for(b"a:b", 7)));
        for rule in config.rules() {
            filter(rule.filter, data);
        }
    }
    if let Ok(header) = Header::parse(data, size) {
        assert!(header.file_size() <= size);
        for packet in 0..4 {
            let _ = header.check_packet(data, packet);
        }
    }
    let _ = (AreaState::parse(data), Context::parse(data));
    counters(data, size);
    filter(data, data);
    // Behind the first byte a filter as text, with what it says as its payload.
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(code) = compile(text)
    {
        assert!(Filter::parse(&code).is_ok(), "what was compiled is read");
        filter(&code, data);
    }
});
