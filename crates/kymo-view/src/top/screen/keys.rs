//! Keys of the screen.

use kymo_analysis::live_profile::{FunctionId, LiveProfile, NodeKind, TaskZoom};

use super::{FrozenTime, RowSubject, ScreenView, TopScreen};

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those on the keys")]
pub enum TopKey {
    Char(char),
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
}

/// Action for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScreenAction {
    /// Nothing: draw it.
    None,
    /// End the program.
    Quit,
    /// Save what is shown.
    Save,
    /// Have lines of source found.
    FindLines,
    /// Show the code of a function.
    ShowCode(FunctionId),
}

impl TopScreen {
    /// Does what a key says. `refresh` is to follow.
    pub fn press(&mut self, key: TopKey, profile: &LiveProfile) -> ScreenAction {
        self.message = None;
        if self.help {
            self.help = false;
            return ScreenAction::None;
        }
        if self.is_typing {
            self.type_filter(key);
            return ScreenAction::None;
        }
        match key {
            TopKey::Char('q' | 'Q') => return ScreenAction::Quit,
            TopKey::Char('?' | 'h') => self.help = true,
            TopKey::Char('/') => self.is_typing = true,
            TopKey::Char('w') => return ScreenAction::Save,
            TopKey::Char(' ') => self.freeze(profile),
            TopKey::Char('[' | ',') => self.step_back(profile),
            TopKey::Char(']' | '.') => self.step_forward(profile),
            TopKey::Char('+') => self.set_window(self.window.saturating_mul(2), profile),
            TopKey::Char('-') => self.set_window(self.window / 2, profile),
            TopKey::Char('K') => self.query.hide_kernel = !self.query.hide_kernel,
            TopKey::Char('U') => self.query.hide_user = !self.query.hide_user,
            TopKey::Char('s') => self.children = !self.children && self.has_chains,
            TopKey::Char('o') => match profile.off_cpu() {
                Some(_) => self.by_off_cpu = !self.by_off_cpu,
                None => self.say("times off the CPU: start with --off-cpu".to_owned()),
            },
            TopKey::Char('1') => self.show_table(RowSubject::Functions),
            TopKey::Char('2') => self.show_table(RowSubject::Threads),
            TopKey::Char('3') => self.show_table(RowSubject::Processes),
            TopKey::Char('4') => {
                self.show_table(RowSubject::Lines);
                return ScreenAction::FindLines;
            }
            TopKey::Char('5') => self.show_table(RowSubject::Binaries),
            TopKey::Char('t') => self.show(ScreenView::Tree),
            TopKey::Char('f') => self.show(ScreenView::Flames),
            TopKey::Char('e') => self.next_event(profile),
            TopKey::Char('a') => {
                return match self.chosen_function() {
                    Some(function) => ScreenAction::ShowCode(function),
                    None => ScreenAction::None,
                };
            }
            TopKey::Escape | TopKey::Backspace => self.go_back(),
            TopKey::Enter => return self.enter(),
            _ => self.move_cursor(key),
        }
        ScreenAction::None
    }

    fn type_filter(&mut self, key: TopKey) {
        match key {
            TopKey::Enter => self.is_typing = false,
            TopKey::Escape => {
                self.is_typing = false;
                self.filter.clear();
            }
            TopKey::Backspace => drop(self.filter.pop()),
            TopKey::Char(c) => self.filter.push(c),
            _ => {}
        }
        (self.cursor, self.first) = (0, 0);
    }

    fn show(&mut self, view: ScreenView) {
        self.view = view;
        (self.cursor, self.first) = (0, 0);
    }

    fn show_table(&mut self, subject: RowSubject) {
        self.subject = subject;
        self.show(ScreenView::Table);
    }

    /// The next of several events.
    fn next_event(&mut self, profile: &LiveProfile) {
        self.query.event = (self.query.event + 1) % profile.events().len().max(1);
        self.has_chains = profile.has_chains(self.query.event);
    }

    /// Leaves the innermost thing first: the code, a zoom, the filter.
    fn go_back(&mut self) {
        match self.view {
            ScreenView::Code => self.show(ScreenView::Table),
            ScreenView::Flames if !self.flame_root.is_empty() => drop(self.flame_root.pop()),
            _ if !self.filter.is_empty() => self.filter.clear(),
            _ if self.zoom.is_some() => self.zoom = None,
            ScreenView::Tree | ScreenView::Flames => self.show(ScreenView::Table),
            ScreenView::Table => self.frozen = None,
        }
    }

    /// Goes into what is chosen.
    fn enter(&mut self) -> ScreenAction {
        match self.view {
            ScreenView::Table => {
                let line = self.cursor.checked_sub(self.first);
                let Some(line) = line.and_then(|at| self.page.lines.get(at)) else {
                    return ScreenAction::None;
                };
                let zoom = match (line.key.tid, line.key.pid, line.key.function) {
                    (Some(tid), ..) => TaskZoom::Thread(tid),
                    (_, Some(pid), _) => TaskZoom::Process(pid),
                    (.., Some(function)) => return ScreenAction::ShowCode(function),
                    _ => return ScreenAction::None,
                };
                let name = line.cells.first().map_or_else(String::new, |c| c.trim().to_owned());
                self.zoom = Some((zoom, name));
                self.show_table(RowSubject::Functions);
            }
            ScreenView::Tree => {
                if let Some(row) = self.tree_rows.get(self.cursor) {
                    let path = row.path.clone();
                    if !self.toggled.remove(&path) {
                        self.toggled.insert(path);
                    }
                }
            }
            ScreenView::Flames => self.flame_root = self.flame_at.clone(),
            ScreenView::Code => {}
        }
        ScreenAction::None
    }

    fn move_cursor(&mut self, key: TopKey) {
        if self.view == ScreenView::Flames {
            return self.move_in_flames(key);
        }
        let page = self.room.max(2) - 1;
        self.cursor = match key {
            TopKey::Up | TopKey::Char('k') => self.cursor.saturating_sub(1),
            TopKey::Down | TopKey::Char('j') => self.cursor.saturating_add(1),
            TopKey::PageUp => self.cursor.saturating_sub(page),
            TopKey::PageDown => self.cursor.saturating_add(page),
            TopKey::Home => 0,
            TopKey::End => usize::MAX / 2,
            _ => self.cursor,
        };
        // What there is is known when it is made anew; the first row must fit by then.
        let rows = match self.view {
            ScreenView::Table => self.page.found,
            ScreenView::Tree => self.tree_rows.len(),
            ScreenView::Code => self.code.as_ref().map_or(0, |c| c.lines.len()),
            ScreenView::Flames => 0,
        };
        self.keep_cursor(rows);
    }

    /// To the caller, a callee, or what lies beside.
    fn move_in_flames(&mut self, key: TopKey) {
        let Some((tree, root, at)) = self.flame_nodes() else { return };
        let parent = tree.node(at).map_or(root, |n| n.parent);
        let beside = |step: isize| {
            let list = tree.children(parent);
            let here = list.iter().position(|id| *id == at)?;
            list.get(here.checked_add_signed(step)?).copied()
        };
        let to = match key {
            TopKey::Up | TopKey::Char('k') if at != root => Some(parent),
            TopKey::Down | TopKey::Char('j') => tree.children(at).first().copied(),
            TopKey::Left if at != root => beside(-1),
            TopKey::Right if at != root => beside(1),
            TopKey::Home => Some(root),
            _ => None,
        };
        if let Some(to) = to {
            let path: Vec<NodeKind> = tree.path(to);
            self.flame_at = path;
        }
    }

    fn freeze(&mut self, profile: &LiveProfile) {
        self.frozen = match self.frozen {
            Some(_) => None,
            None => Some(FrozenTime { times: self.times(profile) }),
        };
    }

    /// One window back, as far as samples are kept.
    fn step_back(&mut self, profile: &LiveProfile) {
        let (first, _) = profile.span().unwrap_or((0, 0));
        let (from, to) = self.times(profile);
        let length = to.saturating_sub(from).min(self.window);
        let from = from.saturating_sub(length).max(first);
        self.frozen = Some(FrozenTime { times: (from, from.saturating_add(length).min(to)) });
    }

    /// One window on; the end of what came lets go.
    fn step_forward(&mut self, profile: &LiveProfile) {
        let Some(frozen) = self.frozen else { return };
        let (_, end) = profile.span().unwrap_or((0, 0));
        let from = frozen.times.1;
        self.frozen = (from < end)
            .then(|| FrozenTime { times: (from, from.saturating_add(self.window).min(end)) });
    }

    fn set_window(&mut self, window: u64, profile: &LiveProfile) {
        const LEAST: u64 = 100_000_000;
        const MOST: u64 = 86_400_000_000_000;
        self.window = window.clamp(LEAST, MOST);
        if let Some(frozen) = &mut self.frozen {
            let (first, _) = profile.span().unwrap_or((0, 0));
            frozen.times.0 = frozen.times.1.saturating_sub(self.window).max(first);
        }
    }
}
