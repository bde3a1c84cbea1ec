//! bpf(2) by programs written by hand: what they put into maps and the ring is read, and
//! nothing is left of them.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use kymo_kernel::bpf::{
    BpfLink, BpfMap, BpfObject, BpfProgram, BpfRing, MapInfo, MapSpec, ProgramInfo, ProgramSpec,
    object_ids,
};
use kymo_kernel::system::SystemRoot;
use std::os::fd::{AsFd, AsRawFd};

const RAW_TRACEPOINT: u32 = 17;

fn instruction(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> [u8; 8] {
    let (o, i) = (off.to_le_bytes(), imm.to_le_bytes());
    [code, dst | src << 4, o[0], o[1], i[0], i[1], i[2], i[3]]
}

/// `dst = map`.
fn load_map(dst: u8, map: &BpfMap) -> Vec<[u8; 8]> {
    vec![instruction(0x18, dst, 1, 0, map.as_fd().as_raw_fd()), instruction(0, 0, 0, 0, 0)]
}

fn load(instructions: &[[u8; 8]]) -> Result<BpfProgram, kymo_kernel::bpf::BpfError> {
    BpfProgram::load(&ProgramSpec {
        name: "kymo_test",
        program_type: RAW_TRACEPOINT,
        instructions: instructions.as_flattened(),
        ..ProgramSpec::default()
    })
}

fn map(map_type: u32, key_size: u32, value_size: u32, max_entries: u32, values: u32) -> BpfMap {
    let spec = MapSpec {
        name: "@test",
        map_type,
        key_size,
        value_size,
        max_entries,
        flags: 0,
        values,
        inner: None,
    };
    BpfMap::create(&spec).unwrap()
}

#[test]
fn entries_of_a_hash_are_all_read_in_any_number() {
    let hash = map(1, 8, 8, 5000, 1);
    assert_eq!(hash.entries().unwrap(), []);
    for n in 0..5000u64 {
        hash.update(&n.to_ne_bytes(), &(n * 3).to_ne_bytes()).unwrap();
    }
    let full = hash.update(&9999u64.to_ne_bytes(), &[0; 8]).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(libc::E2BIG));
    let mut entries = hash.entries().unwrap();
    entries.sort_by_key(|(key, _)| u64::from_ne_bytes(key[..].try_into().unwrap()));
    let expected = (0..5000u64).map(|n| (n.to_ne_bytes().to_vec(), (n * 3).to_ne_bytes().to_vec()));
    assert!(entries.into_iter().eq(expected));
    hash.delete(&7u64.to_ne_bytes()).unwrap();
    hash.delete(&7u64.to_ne_bytes()).unwrap();
    assert_eq!(hash.lookup(&7u64.to_ne_bytes()).unwrap(), None);
    assert_eq!(hash.lookup(&8u64.to_ne_bytes()).unwrap(), Some(24u64.to_ne_bytes().to_vec()));
    assert!(hash.lookup(&[0; 4]).is_err(), "a key of the wrong size goes nowhere");
}

#[test]
fn records_come_in_order_and_what_did_not_fit_is_missing() {
    let ring = map(27, 0, 0, 4096, 1);
    let counter = map(2, 4, 8, 1, 1);
    let mut code = vec![
        instruction(0x62, 10, 0, -4, 0), // *(u32 *)(r10 - 4) = 0
        instruction(0xbf, 2, 10, 0, 0),
        instruction(0x07, 2, 0, 0, -4),
    ];
    code.extend(load_map(1, &counter));
    code.extend([
        instruction(0x85, 0, 0, 0, 1),  // map_lookup_elem
        instruction(0x15, 0, 0, 13, 0), // absent: out
        instruction(0x79, 6, 0, 0, 0),  // r6 = *r0
        instruction(0x07, 6, 0, 0, 1),
        instruction(0x7b, 0, 6, 0, 0),
        instruction(0x7b, 10, 6, -16, 0),
    ]);
    code.extend(load_map(1, &ring));
    code.extend([
        instruction(0xbf, 2, 10, 0, 0),
        instruction(0x07, 2, 0, 0, -16),
        instruction(0xb7, 3, 0, 0, 8),
        instruction(0xb7, 4, 0, 0, 1), // BPF_RB_NO_WAKEUP
        instruction(0x85, 0, 0, 0, 130),
        instruction(0xb7, 0, 0, 0, 0),
        instruction(0x95, 0, 0, 0, 0),
    ]);
    // The jump leads to `r0 = 0`.
    code[6] = instruction(0x15, 0, 0, (code.len() - 2 - 7) as i16, 0);
    let program = load(&code).unwrap();
    let mut reader = BpfRing::map(&ring, 4096).unwrap();
    let mut seen = Vec::new();
    let mut read = |reader: &mut BpfRing, most| {
        reader.read(most, |record| {
            seen.push(u64::from_ne_bytes(record.try_into().unwrap()));
            true
        })
    };
    // 16 bytes each: 256 fill the ring, less one byte.
    for _ in 0..300 {
        program.run_once().unwrap();
    }
    assert_eq!(reader.pending(), 255 * 16);
    assert_eq!(read(&mut reader, 160), 160);
    assert_eq!(read(&mut reader, u64::MAX), 245 * 16);
    for _ in 0..10 {
        program.run_once().unwrap();
    }
    assert_eq!(read(&mut reader, u64::MAX), 160);
    let expected: Vec<u64> = (1..=255).chain(301..=310).collect();
    assert_eq!(seen, expected);
}

#[test]
fn a_refused_program_has_the_verifiers_words() {
    let refused = load(&[instruction(0x95, 0, 0, 0, 0)]).unwrap_err();
    assert_eq!(refused.error.raw_os_error(), Some(libc::EACCES));
    assert!(refused.log.contains("R0 !read_ok"), "{}", refused.log);
    assert!(refused.to_string().contains("load program kymo_test"), "{refused}");
}

#[test]
fn nothing_is_left_of_what_was_dropped() {
    let count = map(6, 4, 8, 1, SystemRoot::machine().possible_cpus().len() as u32);
    let mut code = load_map(1, &count);
    code.extend([instruction(0xb7, 0, 0, 0, 0), instruction(0x95, 0, 0, 0, 0)]);
    let program = load(&code).unwrap();
    let id = ProgramInfo::of(&program).unwrap().id;
    let map_id = MapInfo::of(&count).unwrap().id;
    let link = BpfLink::to_raw_tracepoint(&program, Some("sys_enter")).unwrap();
    assert!(object_ids(BpfObject::Program).unwrap().contains(&id));
    assert!(object_ids(BpfObject::Map).unwrap().contains(&map_id));
    drop((link, program, count));
    // Programs are freed after a grace period.
    let freed = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        let programs = object_ids(BpfObject::Program).unwrap();
        let maps = object_ids(BpfObject::Map).unwrap();
        !programs.contains(&id) && !maps.contains(&map_id)
    });
    assert!(freed, "program {id} or map {map_id} is still there");
}

#[test]
fn an_unknown_raw_tracepoint_is_said() {
    let program = load(&[instruction(0xb7, 0, 0, 0, 0), instruction(0x95, 0, 0, 0, 0)]).unwrap();
    let refused = BpfLink::to_raw_tracepoint(&program, Some("no_such_event")).unwrap_err();
    assert_eq!(refused.error.raw_os_error(), Some(libc::ENOENT));
    assert!(refused.to_string().contains("no_such_event"), "{refused}");
}
