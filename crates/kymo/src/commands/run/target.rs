//! What a program is for: a process that runs, or a command that it starts.

use std::ffi::OsString;

use kymo_kernel::process::GatedChild;
use kymo_kernel::target::check_thread;

/// Process of `-p`, command of `-c`.
pub(super) struct RunTarget {
    pid: Option<u32>,
    child: Option<GatedChild>,
}

const SIGTERM: i32 = 15;

impl RunTarget {
    /// Checks that the process is there; forks the command, which waits.
    pub(super) fn new(pid: Option<u32>, command: Option<&str>) -> anyhow::Result<RunTarget> {
        if let Some(pid) = pid {
            check_thread(pid)?;
        }
        let child = match command {
            Some(command) => Some(GatedChild::spawn(&split_words(command))?),
            None => None,
        };
        Ok(RunTarget { pid, child })
    }

    /// Process of the command.
    pub(super) fn child_pid(&self) -> Option<u32> {
        self.child.as_ref().map(GatedChild::pid)
    }

    /// Either process.
    pub(super) fn pid(&self) -> Option<u32> {
        self.pid.or(self.child_pid())
    }

    /// Lets the command run.
    pub(super) fn release(&mut self) -> anyhow::Result<()> {
        if let Some(child) = &mut self.child {
            child.release()?;
        }
        Ok(())
    }

    /// Whether the process or the command has ended.
    pub(super) fn has_ended(&mut self) -> anyhow::Result<bool> {
        if let Some(child) = &mut self.child {
            return Ok(child.try_wait()?.is_some());
        }
        Ok(self.pid.is_some_and(|pid| check_thread(pid).is_err()))
    }

    /// Ends the command if it still runs.
    pub(super) fn end(mut self) {
        if let Some(child) = &mut self.child
            && child.try_wait().is_ok_and(|exit| exit.is_none())
            && child.kill(SIGTERM).is_ok()
        {
            let _ = child.wait();
        }
    }
}

/// Words of a command: blanks part them, quotes and backslashes keep them together.
fn split_words(command: &str) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            (c, Some(q)) if c == q => quote = None,
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(chars.next()),
            (c, Some(_)) => word.get_or_insert_default().push(c),
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, None) if c.is_whitespace() => words.extend(word.take().map(OsString::from)),
            (c, None) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word.map(OsString::from));
    words
}

#[cfg(test)]
mod tests {
    use super::split_words;

    #[test]
    fn commands_are_split_as_a_shell_does() {
        let check = |command: &str, words: &[&str]| assert_eq!(split_words(command), words);
        check("ls -l  /tmp", &["ls", "-l", "/tmp"]);
        check("sh -c 'echo \"a b\"' \"c d\"e", &["sh", "-c", "echo \"a b\"", "c de"]);
        check(r"a\ b ''", &["a b", ""]);
        check(" ", &[]);
    }
}
