//! Says which function each tasklet runs, as a kernel module would that hooks
//! `irq:tasklet_entry`; needs root. Another event and field may be named:
//! `tasklet irq:softirq_entry vec`.

use std::io::Write as _;
use std::ops::ControlFlow;

use kymo_kernel::ftrace::Hook;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let event = args.next().unwrap_or_else(|| "irq:tasklet_entry".to_owned());
    let field = args.next().unwrap_or_else(|| "func".to_owned());
    Hook::attach(&event)?.run(|fired| {
        let name = match (fired.symbol(&field), fired.int(&field)) {
            (Some(function), _) => function.to_owned(),
            (None, value) => format!("{field}={value:?}"),
        };
        // The reader has closed the pipe: that is the end.
        match writeln!(std::io::stdout(), "cpu {}: {name}", fired.cpu) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    Ok(())
}
