//! Screens of `kymo top`: what keys change (`TopScreen`), and how each view is drawn into a
//! buffer of cells (`draw`, `table`, `call_tree`, `flame_graph`, `code`). No terminal is known
//! here: who has one copies the cells.

mod call_tree;
mod code;
mod draw;
mod flame_graph;
mod help;
mod keys;
mod table;

use kymo_analysis::live_profile::{
    FunctionId, LiveKey, LiveNodeId, LiveProfile, LiveQuery, LiveTree, NodeKind, TaskZoom,
};
use rustc_hash::FxHashSet;

use super::page::{TopPage, TopShape, build_page};

pub use code::{CodeLine, CodeScreen};
pub use draw::{ScreenHead, ScreenStyle};
pub use keys::{ScreenAction, TopKey};

/// View of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScreenView {
    /// Rows of numbers.
    Table,
    /// Call tree, line by line.
    Tree,
    /// Flame graph.
    Flames,
    /// Instructions of a function.
    Code,
}

/// Subject of the table's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowSubject {
    /// Keys as they were asked for: functions, if nothing else was.
    Functions,
    /// Threads.
    Threads,
    /// Processes.
    Processes,
    /// Lines of source.
    Lines,
    /// Binaries.
    Binaries,
}

impl RowSubject {
    fn name(self) -> &'static str {
        match self {
            RowSubject::Functions => "functions",
            RowSubject::Threads => "threads",
            RowSubject::Processes => "processes",
            RowSubject::Lines => "lines",
            RowSubject::Binaries => "binaries",
        }
    }
}

/// A span of time that stays in view while samples continue to arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrozenTime {
    /// From, and up to before.
    pub times: (u64, u64),
}

/// The state of the screen: the current view, and the last results for it.
#[derive(Debug)]
pub struct TopScreen {
    view: ScreenView,
    subject: RowSubject,
    /// As it was asked for on the command line.
    query: LiveQuery,
    children: bool,
    has_chains: bool,
    percent_limit: f64,
    /// Times off the CPU are what rows are ordered by, and what trees are of.
    by_off_cpu: bool,
    relative: bool,
    zoom: Option<(TaskZoom, String)>,
    /// Text that rows must hold, and whether keys go into it now.
    filter: String,
    is_typing: bool,
    /// The row that is chosen, and the first that is shown.
    cursor: usize,
    first: usize,
    /// Rows that there was room for when it was drawn last.
    room: usize,
    window: u64,
    frozen: Option<FrozenTime>,
    help: bool,
    message: Option<String>,
    page: TopPage,
    tree: Option<LiveTree>,
    /// Nodes whose state is not the one that their weight gives them.
    toggled: FxHashSet<Vec<NodeKind>>,
    tree_rows: Vec<call_tree::TreeRow>,
    /// Node of the flame graph that fills its width, and the chosen one.
    flame_root: Vec<NodeKind>,
    flame_at: Vec<NodeKind>,
    code: Option<CodeScreen>,
}

impl TopScreen {
    /// The table of a query; `window`: nanoseconds that it is about.
    pub fn new(
        query: LiveQuery,
        (children, percent_limit, relative): (bool, f64, bool),
        window: u64,
        profile: &LiveProfile,
    ) -> TopScreen {
        TopScreen {
            view: ScreenView::Table,
            subject: RowSubject::Functions,
            children,
            has_chains: profile.has_chains(query.event),
            query,
            percent_limit,
            by_off_cpu: false,
            relative,
            zoom: None,
            filter: String::new(),
            is_typing: false,
            cursor: 0,
            first: 0,
            room: 1,
            window,
            frozen: None,
            help: false,
            message: None,
            page: TopPage::default(),
            tree: None,
            toggled: FxHashSet::default(),
            tree_rows: Vec::new(),
            flame_root: Vec::new(),
            flame_at: Vec::new(),
            code: None,
        }
    }

    /// Time that is shown: what is frozen, or the last seconds.
    pub fn times(&self, profile: &LiveProfile) -> (u64, u64) {
        if let Some(frozen) = self.frozen {
            return frozen.times;
        }
        let (first, end) = profile.span().unwrap_or((0, 0));
        (first.max(end.saturating_sub(self.window)), end)
    }

    /// Time that is frozen, if it is.
    pub fn frozen(&self) -> Option<FrozenTime> {
        self.frozen
    }

    /// Samples that are shown.
    pub fn shown_query(&self, profile: &LiveProfile) -> LiveQuery {
        let keys = match self.subject {
            RowSubject::Functions => self.query.keys.clone(),
            RowSubject::Threads => vec![LiveKey::Pid],
            RowSubject::Processes => vec![LiveKey::Tgid],
            RowSubject::Lines => vec![LiveKey::Srcline],
            RowSubject::Binaries => vec![LiveKey::Dso],
        };
        let times = self.times(profile);
        LiveQuery { times, keys, zoom: self.zoom.as_ref().map(|z| z.0), ..self.query.clone() }
    }

    /// Whether rows are weighed with what they call.
    fn weighs_children(&self) -> bool {
        let of_code = matches!(
            self.subject,
            RowSubject::Functions | RowSubject::Lines | RowSubject::Binaries
        );
        self.children && of_code
    }

    /// Makes what is shown anew.
    pub fn refresh(&mut self, profile: &LiveProfile) {
        let query = self.shown_query(profile);
        let is_table = self.view == ScreenView::Table;
        // The sums of the last line are wanted of every view.
        let shape = TopShape {
            children: self.weighs_children(),
            filter: if is_table { self.filter.clone() } else { String::new() },
            relative: self.relative,
            least: self.percent_limit,
            by_off_cpu: self.by_off_cpu,
            skip: self.first,
            most: if is_table { self.room.max(1) } else { 0 },
            ..TopShape::default()
        };
        self.page = build_page(profile, &query, &shape);
        let tree_query = match profile.off_cpu().filter(|_| self.by_off_cpu) {
            Some(event) => LiveQuery { event, ..query.clone() },
            None => query.clone(),
        };
        match self.view {
            ScreenView::Table => self.keep_cursor(self.page.found),
            ScreenView::Tree => {
                let tree = profile.tree(&tree_query);
                self.tree_rows = call_tree::rows(profile, &tree, &self.toggled, &self.filter);
                self.tree = Some(tree);
                self.keep_cursor(self.tree_rows.len());
            }
            ScreenView::Flames => {
                let tree = profile.tree(&tree_query);
                let root = tree.find(&self.flame_root);
                self.flame_root = tree.path(root);
                let at = tree.find(&self.flame_at);
                self.flame_at = tree.path(at);
                self.tree = Some(tree);
            }
            ScreenView::Code => {
                let lines = self.code.as_mut().map_or(0, |code| {
                    code.count(profile, &query);
                    code.lines.len()
                });
                self.keep_cursor(lines);
            }
        }
    }

    /// Keeps the chosen row among those that there are, and on the screen.
    fn keep_cursor(&mut self, rows: usize) {
        self.cursor = self.cursor.min(rows.saturating_sub(1));
        if self.cursor < self.first {
            self.first = self.cursor;
        }
        if self.cursor >= self.first + self.room.max(1) {
            self.first = self.cursor + 1 - self.room.max(1);
        }
    }

    /// Returns the current view.
    pub fn view(&self) -> ScreenView {
        self.view
    }

    /// Rows that there was room for when it was drawn last.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Sums over the samples that are shown.
    pub fn sums(&self) -> &kymo_analysis::live_profile::LiveRows {
        &self.page.sums
    }

    /// Says something until the next key.
    pub fn say(&mut self, message: String) {
        self.message = Some(message);
    }

    /// Shows the code of a function.
    pub fn show_code(&mut self, code: CodeScreen) {
        self.code = Some(code);
        self.view = ScreenView::Code;
        self.message = None;
        (self.cursor, self.first) = (0, 0);
    }

    /// The function that is chosen, in whatever view.
    fn chosen_function(&self) -> Option<FunctionId> {
        match self.view {
            ScreenView::Table => {
                let row = self.page.lines.get(self.cursor.checked_sub(self.first)?)?;
                row.key.function
            }
            ScreenView::Tree => match self.tree_rows.get(self.cursor)?.kind {
                NodeKind::Function(function) => Some(function),
                _ => None,
            },
            ScreenView::Flames => match self.flame_at.last()? {
                NodeKind::Function(function) => Some(*function),
                _ => None,
            },
            ScreenView::Code => None,
        }
    }

    /// The node that fills the width of the flame graph, and the chosen one.
    fn flame_nodes(&self) -> Option<(&LiveTree, LiveNodeId, LiveNodeId)> {
        let tree = self.tree.as_ref()?;
        Some((tree, tree.find(&self.flame_root), tree.find(&self.flame_at)))
    }
}
