//! Reading another process's memory, as it is at the moment of asking.

use std::io;

/// Reads up to `buffer.len()` bytes at `address` of the process of thread `tid`: how
/// many there are. Fewer than asked for if the memory behind them cannot be read.
///
/// # Errors
/// `ESRCH` if it is gone, `EFAULT` if nothing is there, `EPERM` if it is not ours.
pub fn read(tid: u32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    // A piece that crosses into a page that is not there fails as a whole, so it goes
    // page by page.
    while done < buffer.len() {
        let at = address.wrapping_add(done as u64);
        let to_page_end = 4096 - (at & 4095) as usize;
        let end = buffer.len().min(done + to_page_end);
        let Some(piece) = buffer.get_mut(done..end) else { break };
        match read_piece(tid, at, piece) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
    }
    Ok(done)
}

fn read_piece(tid: u32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address as usize),
        iov_len: buffer.len(),
    };
    // SAFETY: `local` describes `buffer`, which is ours to write to for the length of the
    // call; `remote` is an address of the other process, which the kernel checks.
    let n = unsafe { libc::process_vm_readv(tid as i32, &local, 1, &remote, 1, 0) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
}

/// A text that ends in NUL, at most `most` bytes of it; the flag says whether its
/// end was seen.
pub fn read_text(tid: u32, address: u64, most: usize) -> io::Result<(Vec<u8>, bool)> {
    let mut text = vec![0; most];
    let n = read(tid, address, &mut text)?;
    text.truncate(n);
    let end = text.iter().position(|b| *b == 0);
    if let Some(end) = end {
        text.truncate(end);
    }
    Ok((text, end.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_own_memory_can_be_read() {
        let me = std::process::id();
        let text = c"a text of this test".to_owned();
        let at = text.as_ptr() as u64;
        assert_eq!(read_text(me, at, 100).unwrap(), (b"a text of this test".to_vec(), true));
        assert_eq!(read_text(me, at, 6).unwrap(), (b"a text".to_vec(), false));
        assert_eq!(read_text(me, 8, 6).unwrap_err().raw_os_error(), Some(libc::EFAULT));
        let gone = read_text(i32::MAX as u32, at, 6).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ESRCH));
    }
}
