//! A live profile to look at: rows with their names and shares (`page`), the text of
//! `kymo top --stdio` (`stdio`), its screens (`screen`), tasks by the second
//! (`tasks`), and what could make it wrong (`trust`).

mod page;
mod screen;
mod stdio;
mod tasks;
mod trust;

pub use page::{TopLine, TopPage, TopShape, build_page, cells_of, function_name, line_name};
pub use screen::{
    CodeLine, CodeScreen, FrozenTime, RowSubject, ScreenAction, ScreenHead, ScreenStyle,
    ScreenView, TopKey, TopScreen,
};
pub use stdio::{StdioColumns, TopHeader, write_stdio};
pub use tasks::{ActivityColumns, ActivitySort, write_tasks};
pub use trust::{TopLosses, top_ledger, top_status};
