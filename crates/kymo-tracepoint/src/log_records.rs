//! Records of the `log` crate as events: `log:error` … `log:trace`, each with the level that
//! belongs to it. Text is made only while a session listens.

use crate::{emit, tracepoint};

/// One event per level, so that sessions can choose by name or by level.
macro_rules! records {
    ($($name:ident: $level:ident;)*) => {$(
        tracepoint! {
            /// A record of the `log` crate.
            log: $name(target: &str, message: &str, file: &str, line: u32) {
                fields { target: str = target, message: str = message, file: str = file, line: u32 = line }
                print "{target}: {message}"
                level crate::Level::$level
            }
        }
    )*};
}

records! {
    error: Error;
    warn: Warning;
    info: Info;
    debug: DebugProgram;
    trace: Debug;
}

/// Hands records of the `log` crate to the listeners, and then to `next`.
///
/// ```
/// use kymo_tracepoint::log_records::Logger;
///
/// let logger = Box::leak(Box::new(Logger::before(log::logger())));
/// log::set_logger(logger).expect("the first logger");
/// log::set_max_level(log::LevelFilter::Trace);
/// log::info!("a customer is there");
/// ```
pub struct Logger<'n> {
    next: &'n dyn log::Log,
}

impl<'n> Logger<'n> {
    /// A logger that hands everything on to another.
    pub fn before(next: &'n dyn log::Log) -> Self {
        Self { next }
    }
}

fn listens(level: log::Level) -> bool {
    match level {
        log::Level::Error => error::enabled(),
        log::Level::Warn => warn::enabled(),
        log::Level::Info => info::enabled(),
        log::Level::Debug => debug::enabled(),
        log::Level::Trace => trace::enabled(),
    }
}

impl log::Log for Logger<'_> {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        listens(metadata.level()) || self.next.enabled(metadata)
    }

    fn log(&self, record: &log::Record<'_>) {
        if listens(record.level()) {
            let message = record.args().to_string();
            let file = record.file().unwrap_or_default();
            let (target, line) = (record.target(), record.line().unwrap_or(0));
            match record.level() {
                log::Level::Error => emit!(error(target, &message, file, line)),
                log::Level::Warn => emit!(warn(target, &message, file, line)),
                log::Level::Info => emit!(info(target, &message, file, line)),
                log::Level::Debug => emit!(debug(target, &message, file, line)),
                log::Level::Trace => emit!(trace(target, &message, file, line)),
            }
        }
        if self.next.enabled(record.metadata()) {
            self.next.log(record);
        }
    }

    fn flush(&self) {
        self.next.flush();
    }
}
