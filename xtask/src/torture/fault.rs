//! Faults of a recorder, or of the machine around it.

use std::time::Duration;

use crate::chance::Chance;

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// Ended without a chance to clean up.
    Kill,
    /// Asked to end.
    Terminate,
    Interrupt,
    /// Stopped for a while, so that rings run over.
    Stop,
    /// Room for this many kilobytes.
    FullDisk(u64),
    /// A limit of open descriptors.
    Descriptors(u64),
    /// A limit of the address space, in megabytes.
    Memory(u64),
    /// One CPU for all.
    OneCpu,
    /// Short processes beside the program.
    Processes(u64),
    /// Threads beside it.
    Threads(u64),
    /// Number of recorders that run concurrently.
    Together(u64),
}

impl Fault {
    pub(super) fn draw(chance: &mut Chance) -> Fault {
        match chance.between(0, 11) {
            0 => Fault::None,
            1 => Fault::Kill,
            2 => Fault::Terminate,
            3 => Fault::Interrupt,
            4 | 5 => Fault::Stop,
            6 => Fault::FullDisk(chance.between(16, 2048)),
            7 => Fault::Descriptors(chance.between(8, 64)),
            8 => Fault::Memory(chance.between(24, 512)),
            9 => Fault::OneCpu,
            10 if chance.between(0, 1) == 0 => Fault::Processes(chance.between(100, 1500)),
            10 => Fault::Threads(chance.between(100, 2000)),
            _ => Fault::Together(*chance.pick(&[2, 2, 4, 16])),
        }
    }

    /// Whether the recorder may fail, with a message.
    pub(super) fn may_fail(self) -> bool {
        matches!(
            self,
            Fault::Kill
                | Fault::Terminate
                | Fault::Interrupt
                | Fault::FullDisk(_)
                | Fault::Descriptors(_)
                | Fault::Memory(_)
        )
    }

    /// Processes or threads beside the program's first.
    pub(super) fn tasks(self) -> u64 {
        match self {
            Fault::Processes(n) | Fault::Threads(n) => n,
            _ => 0,
        }
    }

    /// The signals that it sends, each after a wait.
    pub(super) fn signals(self, chance: &mut Chance) -> Vec<(Duration, &'static str)> {
        let wait = |chance: &mut Chance, most| Duration::from_millis(chance.between(0, most));
        match self {
            Fault::Kill => vec![(wait(chance, 300), "-KILL")],
            Fault::Terminate => vec![(wait(chance, 300), "-TERM")],
            Fault::Interrupt => vec![(wait(chance, 300), "-INT")],
            Fault::Stop => {
                let begin = (wait(chance, 100), "-STOP");
                vec![begin, (wait(chance, 300), "-CONT")]
            }
            _ => Vec::new(),
        }
    }

    /// The program and arguments that set limits for the command behind them, which keeps their
    /// process.
    pub(super) fn limits(self) -> Vec<String> {
        let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect();
        match self {
            Fault::Descriptors(n) => words(&["prlimit", &format!("--nofile={n}"), "--"]),
            Fault::Memory(mb) => words(&["prlimit", &format!("--as={}", mb << 20), "--"]),
            Fault::OneCpu => words(&["taskset", "-c", "0"]),
            _ => Vec::new(),
        }
    }
}
