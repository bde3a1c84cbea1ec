//! Finished packets that go from a ring to a file without being copied here: read is
//! a page of each, for its context, and the kernel takes the rest from the ring's memory,
//! which this process maps and never touches.

use std::collections::BTreeMap;

use kymo_kernel::opaque_mapping::{OpaqueMapping, WritePiece};
use kymo_kernel::shared::SharedFile;
use kymo_ring::{CONTEXT_END, Context, Header, Mode};

use super::error::UstError;
use super::ring::Area;

/// Size of the copied first part of a packet, and alignment of packets in the file, so that direct
/// I/O is possible.
const PAGE: usize = 4096;
/// Least number of bytes that are written together, if available.
const AT_ONCE: u64 = 256 << 10;

#[derive(Clone, Debug)]
#[repr(align(4096))]
struct Page([u8; PAGE]);

/// Packets of one area in their order.
#[derive(Debug)]
pub struct CompletePackets<'a> {
    /// Area.
    pub area: u32,
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes, a multiple of a page.
    pub bytes: u64,
    /// Number of bytes that can be written into the area before it is full.
    pub free: u64,
    /// Memory of the packets.
    pub memory: &'a OpaqueMapping,
    /// The pieces of all.
    pub pieces: Vec<WritePiece<'a>>,
}

/// The memory of a ring's areas, mapped when it is first needed; none where that cannot be.
#[derive(Debug, Default)]
pub(super) struct Memory {
    areas: BTreeMap<u32, Option<OpaqueMapping>>,
    heads: Vec<Page>,
}

impl Memory {
    /// The packets of an area that are finished, from the next on, a part of them if they are
    /// many. None if they cannot be taken so, or the next is not what it should be. `reader` is
    /// moved on by what is handed out but for the place.
    pub(super) fn whole<'a>(
        &'a mut self,
        file: &SharedFile,
        header: &Header,
        area: u32,
        open: u64,
        reader: &mut Area,
        uuid: &[u8; 16],
    ) -> Result<Option<CompletePackets<'a>>, UstError> {
        let config = header.config();
        if config.mode != Mode::Discard || reader.within() > 0 {
            return Ok(None);
        }
        let (offset, size) = (header.area_offset(area), header.area_size());
        let memory =
            self.areas.entry(area).or_insert_with(|| file.opaque_mapping(offset, size).ok());
        let Some(memory) = memory else { return Ok(None) };
        let (sub_buffer, room) = (u64::from(config.sub_buffer), u64::from(config.sub_buffers));
        let waiting = open.saturating_sub(reader.next());
        let most = waiting.min((AT_ONCE / sub_buffer).max(room / 4).max(1)).min(room);
        self.heads.resize(most as usize, Page([0; PAGE]));
        let (mut pieces, mut bytes, mut packets) = (Vec::new(), 0, 0);
        for head in &mut self.heads {
            let packet = reader.next() + packets;
            let at = header.packet_offset(area, packet);
            let Some(mut context) = context(file, header, (area, packet), &mut head.0)? else {
                break;
            };
            let len = (context.content_bits / 8).next_multiple_of(PAGE as u64);
            reader.number(&mut context);
            context.packet_bits = 8 * len;
            head.0[..CONTEXT_END].copy_from_slice(&context.encode(uuid));
            let from = (at - offset) as usize;
            pieces.push(WritePiece::Own(&head.0[..]));
            pieces.push(WritePiece::Mapped(from + PAGE..from + len as usize));
            (bytes, packets) = (bytes + len, packets + 1);
        }
        let free = room.saturating_sub(waiting) * sub_buffer;
        let whole = CompletePackets { area, packets, bytes, free, memory, pieces };
        Ok((packets > 0).then_some(whole))
    }
}

/// The first page of a packet and its context, if both can be, and the packet is there as a whole: a
/// hole would get memory by being read, at this process's expense.
fn context(
    file: &SharedFile,
    header: &Header,
    packet_of: (u32, u64),
    head: &mut [u8; PAGE],
) -> Result<Option<Context>, UstError> {
    let (area, packet) = packet_of;
    let (at, size) = (header.packet_offset(area, packet), u64::from(header.config().sub_buffer));
    if !file.is_dense(at, size)? {
        return Ok(None);
    }
    file.read_at(at, head)?;
    let Ok(context) = header.check_packet(head, packet) else { return Ok(None) };
    let content = context.content_bits / 8;
    let sound = context.content_bits.is_multiple_of(8)
        && (CONTEXT_END as u64..=size).contains(&content)
        && context.begin <= context.end;
    Ok(sound.then_some(context))
}
