//! Prints the function that a field of an event names, on each event: `functions
//! irq:tasklet_entry func`, as a kernel module would that hooks the tracepoint. Without
//! arguments it shows the timers that expire. Needs root.

use std::ops::ControlFlow;

use kymo_live::{LiveError, Subscription};

fn main() -> Result<(), LiveError> {
    let mut args = std::env::args().skip(1);
    let event = args.next().unwrap_or_else(|| "timer:hrtimer_expire_entry".into());
    let field = args.next().unwrap_or_else(|| "function".into());
    let summary = Subscription::new().event(event).run(|event| {
        let function = event.function(&field).unwrap_or_else(|| "?".into());
        println!("{}: {function}", event.name());
        ControlFlow::Continue(())
    })?;
    println!("{} events, {} lost", summary.events, summary.lost);
    Ok(())
}
