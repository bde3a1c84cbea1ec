//! Job of the guest, written by the host into the initrd.

use std::io;

use crate::bytes::{Reader, Writer};

/// Everything the guest does between start and power-off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Modules to load, in this order; the port's driver is among the first.
    pub modules: Vec<GuestModule>,
    /// Commands to run one after the other, whatever their exit status.
    pub commands: Vec<Command>,
    /// Files to bring back at the end.
    pub get: Vec<String>,
    /// Mount point of the disk; empty if there is none.
    pub disk: String,
    /// Seconds after which the guest ends itself, should the host be gone.
    pub limit_seconds: u32,
}

/// A kernel module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestModule {
    /// Its file in the guest.
    pub path: String,
    /// Its parameters, as insmod takes them.
    pub parameters: String,
}

/// A command of the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Program and arguments.
    pub arguments: Vec<String>,
    /// Variables in addition to those of every command, as `NAME=value`.
    pub environment: Vec<String>,
    /// Seconds after which it is killed.
    pub limit_seconds: u32,
}

impl Job {
    /// The job as the file that the guest reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.number(self.limit_seconds).bytes(self.disk.as_bytes()).strings(&self.get);
        out.number(u32::try_from(self.modules.len()).unwrap_or(u32::MAX));
        for module in &self.modules {
            out.bytes(module.path.as_bytes()).bytes(module.parameters.as_bytes());
        }
        out.number(u32::try_from(self.commands.len()).unwrap_or(u32::MAX));
        for command in &self.commands {
            out.strings(&command.arguments).strings(&command.environment);
            out.number(command.limit_seconds);
        }
        out.0
    }

    /// Reads what [`Job::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> io::Result<Job> {
        let mut input = Reader::new(bytes);
        let limit_seconds = input.number()?;
        let disk = input.string()?;
        let get = input.strings()?;
        let count = input.number()?;
        let modules = (0..count)
            .map(|_| Ok(GuestModule { path: input.string()?, parameters: input.string()? }))
            .collect::<io::Result<_>>()?;
        let count = input.number()?;
        let commands = (0..count)
            .map(|_| {
                Ok(Command {
                    arguments: input.strings()?,
                    environment: input.strings()?,
                    limit_seconds: input.number()?,
                })
            })
            .collect::<io::Result<_>>()?;
        input.end()?;
        Ok(Job { modules, commands, get, disk, limit_seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_comes_back_and_a_cut_one_is_refused() {
        let job = Job {
            modules: vec![GuestModule { path: "/lib/a.ko".into(), parameters: "x=1".into() }],
            commands: vec![Command {
                arguments: vec!["sh".into(), "-c".into(), "echo\n'ä'".into(), String::new()],
                environment: vec!["CI=true".into()],
                limit_seconds: 7,
            }],
            get: vec!["/tmp/x".into()],
            disk: "/mnt".into(),
            limit_seconds: 60,
        };
        let bytes = job.to_bytes();
        assert_eq!(Job::from_bytes(&bytes).unwrap(), job);
        for end in 0..bytes.len() {
            assert!(Job::from_bytes(&bytes[..end]).is_err(), "cut at {end}");
        }
        let long = [bytes.as_slice(), b"x"].concat();
        let error = Job::from_bytes(&long).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("something is left over at byte {} of {}", bytes.len(), long.len())
        );
    }
}
