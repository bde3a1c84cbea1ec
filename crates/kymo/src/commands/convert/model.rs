//! The flag `--split`, and the words of the model of stacks.

pub(crate) use kymo_view::profile_stacks::{
    SampleWeight as Weight, TaskNumbers as Tasks, TaskSplit,
};

/// Group stacks by task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Split {
    /// Nothing: all samples together
    None,
    /// Their names
    Comm,
    /// Their processes
    Pid,
    /// Their threads
    Tid,
}

impl From<Split> for TaskSplit {
    fn from(split: Split) -> TaskSplit {
        match split {
            Split::None => TaskSplit::None,
            Split::Comm => TaskSplit::Comm,
            Split::Pid => TaskSplit::Pid,
            Split::Tid => TaskSplit::Tid,
        }
    }
}
