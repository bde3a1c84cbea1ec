//! Says which reads of a command asked for more than a page: `large_reads COMMAND [ARGUMENT…]`.

use std::ops::ControlFlow;

use kymo_live::{LiveError, Subscription};

fn main() -> Result<(), LiveError> {
    let summary = Subscription::new()
        .event("syscalls:sys_enter_read")
        .filter("count > 4096")
        .command(std::env::args_os().skip(1))
        .run(|event| {
            let (fd, count) = (event.integer("fd"), event.integer("count"));
            if let (Some(fd), Some(count)) = (fd, count) {
                println!("{} reads {count} bytes of descriptor {fd}", event.comm());
            }
            ControlFlow::Continue(())
        })?;
    summary.notes.iter().for_each(|note| eprintln!("{note}"));
    Ok(())
}
