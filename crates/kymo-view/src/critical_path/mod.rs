//! Output of `kymo why`: critical paths as text.

mod text;

use kymo_analysis::critical_path::{PathCulprit, PathSegment, PathTable, PathTask, PathTaskId};

use crate::units::{TimeUnits, shown};

/// Critical paths as they are shown.
pub struct PathView<'a> {
    /// The paths.
    pub table: &'a PathTable,
    /// Number of segments that are shown.
    pub worst: usize,
    /// Columns of the screen, if there is one.
    pub columns: Option<usize>,
    /// Units of times.
    pub units: TimeUnits,
    /// The recording as arguments of a command, `-i FILE`.
    pub recording: String,
}

impl PathView<'_> {
    /// A task as a word.
    fn who(&self, id: PathTaskId) -> String {
        let name = |t: &PathTask| format!("{}:{}", shown(&t.comm), t.tid);
        self.table.task(id).map_or_else(|| "[unknown]".to_owned(), name)
    }

    /// A task, or all of its name.
    fn culprit(&self, row: &PathCulprit) -> String {
        match self.table.task(row.task).filter(|_| row.is_several) {
            Some(task) => shown(&task.comm),
            None => self.who(row.task),
        }
    }

    /// The command that shows the events of a segment, where they are kept.
    fn script(&self, segment: &PathSegment) -> Option<String> {
        self.table.script(segment, &self.recording)
    }
}
