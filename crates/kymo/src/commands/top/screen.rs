//! `kymo top` on a terminal: keys in, screens out, until the user quits.

use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use kymo_kernel::process::{Signal, Signals};
use kymo_kernel::terminal::{RawTerminal, TERMINAL_SIGNALS};
use kymo_view::top::{CodeScreen, ScreenAction, ScreenHead, ScreenView, TopScreen, top_ledger};
use ratatui_core::terminal::Terminal;

use super::Args;
use super::backend::TerminalBackend;
use super::keys::keys;
use super::session::TopSession;
use crate::exit;

/// The first pages follow each other faster, to show results early.
const FIRST: [Duration; 3] =
    [Duration::from_millis(60), Duration::from_millis(200), Duration::from_millis(500)];

struct TopTerminal<'a> {
    args: &'a Args,
    session: TopSession,
    screen: TopScreen,
    head: ScreenHead,
    terminal: Terminal<TerminalBackend>,
    signals: Signals,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let query = args.query()?;
    // Before any thread begins, which would be sent the signals otherwise.
    let signals = Signals::listen(&TERMINAL_SIGNALS).context("cannot listen for signals")?;
    let session = TopSession::start(args, &query)?;
    let window = u64::try_from(args.window.as_nanos()).unwrap_or(u64::MAX);
    let relative = args.percentage == "relative";
    let shape = (args.weighs_children(), args.percent_limit, relative);
    let screen = TopScreen::new(query, shape, window, &session.profile);
    let raw = RawTerminal::enter().context("the terminal")?;
    let terminal = Terminal::new(TerminalBackend::new(raw)).context("the terminal")?;
    let head = session.screen_head();
    let mut top = TopTerminal { args, session, screen, head, terminal, signals };
    let outcome = top.until_the_end();
    // The terminal is given back before anything is said on it.
    let TopTerminal { session, mut screen, terminal, .. } = top;
    drop(terminal);
    outcome?;
    screen.refresh(&session.profile);
    let sums = screen.sums().clone();
    let (profile, notes) = session.finish();
    let ledger = top_ledger(&profile, &sums, notes);
    if !ledger.is_empty() {
        say!("{}", ledger.to_text(""));
    }
    Ok(exit::of_command(None, &ledger, args.strict))
}

impl TopTerminal<'_> {
    fn until_the_end(&mut self) -> anyhow::Result<()> {
        let mut first = FIRST.iter();
        let mut next = Instant::now();
        let mut was_pending = false;
        loop {
            if Instant::now() >= next {
                self.show()?;
                next = Instant::now() + first.next().copied().unwrap_or(self.args.delay());
            }
            let left = next.saturating_duration_since(Instant::now());
            let terminal = self.terminal.backend().terminal.as_fd().try_clone_to_owned()?;
            let signals = self.signals.as_fd().try_clone_to_owned()?;
            let was_empty = self.session.profile.span().is_none();
            let ended = self.session.step(left, &[terminal.as_fd(), signals.as_fd()])?;
            if ended.is_some() {
                return Ok(());
            }
            if was_empty && self.session.profile.span().is_some() {
                next = Instant::now();
            }
            // New names are shown immediately.
            let is_pending = self.session.profile.pending_names().functions > 0;
            if was_pending && !is_pending {
                next = Instant::now();
            }
            was_pending = is_pending;
            if self.take_code() {
                next = Instant::now();
            }
            if self.take_signals()? {
                next = Instant::now();
            }
            match self.take_keys()? {
                Some(true) => return Ok(()),
                Some(false) => next = Instant::now(),
                None => {}
            }
        }
    }

    fn show(&mut self) -> anyhow::Result<()> {
        let TopTerminal { screen, session, terminal, head, .. } = self;
        screen.refresh(&session.profile);
        let draw = |screen: &mut TopScreen, terminal: &mut Terminal<TerminalBackend>| {
            let drawn = terminal
                .draw(|frame| screen.draw(&session.profile, head, frame.buffer_mut()))
                .map(|_| ());
            drawn.context("the terminal")
        };
        let room = screen.room();
        draw(screen, terminal)?;
        // How many rows there is room for is known once it was drawn.
        if screen.room() != room {
            screen.refresh(&session.profile);
            draw(screen, terminal)?;
        }
        Ok(())
    }

    /// Whether something is to be drawn anew.
    fn take_signals(&mut self) -> anyhow::Result<bool> {
        let mut any = false;
        while let Some(signal) = self.signals.next()? {
            any = true;
            let backend = self.terminal.backend_mut();
            match signal {
                Signal::Stop => backend.terminal.stop_program().context("the terminal")?,
                Signal::Continue => backend.terminal.resume().context("the terminal")?,
                _ => {}
            }
            self.terminal.clear().context("the terminal")?;
        }
        Ok(any)
    }

    /// Handles keys; returns whether to quit, or `None` without keys.
    fn take_keys(&mut self) -> anyhow::Result<Option<bool>> {
        let mut bytes = [0; 256];
        let count = self.terminal.backend().terminal.read_keys(&mut bytes)?;
        let keys = keys(bytes.get(..count).unwrap_or_default());
        if keys.is_empty() {
            return Ok(None);
        }
        for key in keys {
            let action = self.screen.press(key, &self.session.profile);
            if action == ScreenAction::Quit {
                return Ok(Some(true));
            }
            self.act(action);
            self.screen.refresh(&self.session.profile);
        }
        let held = self.screen.frozen().map(|f| f.times.0);
        self.session.profile.hold(held);
        Ok(Some(false))
    }

    fn act(&mut self, action: ScreenAction) {
        match action {
            ScreenAction::None | ScreenAction::Quit => {}
            ScreenAction::FindLines => self.session.profile.want_lines(),
            ScreenAction::ShowCode(function) => {
                let query = self.screen.shown_query(&self.session.profile);
                self.session.profile.want_code(&query, function);
                self.screen.say("the code is looked for".to_owned());
            }
            ScreenAction::Save => {
                let message = match self.save() {
                    Ok(message) => message,
                    Err(e) => format!("not saved: {e:#}"),
                };
                self.screen.say(message);
            }
        }
    }

    /// Saves what is shown.
    fn save(&mut self) -> anyhow::Result<String> {
        let path = self.args.output.clone().unwrap_or_else(|| PathBuf::from("perf.data"));
        let times = self.screen.times(&self.session.profile);
        let saved = self.session.capture.save(&path, times)?;
        Ok(format!("saved {} samples to {}", saved.samples, path.display()))
    }

    /// Shows code that was listed meanwhile; returns whether to draw.
    fn take_code(&mut self) -> bool {
        let Some((_, code)) = self.session.profile.take_code() else { return false };
        match code {
            Ok(code) => {
                self.screen.show_code(CodeScreen::new(code, &self.session.profile));
                self.screen.refresh(&self.session.profile);
                self.screen.show_hottest_line();
                debug_assert_eq!(self.screen.view(), ScreenView::Code);
            }
            Err(why) => self.screen.say(why),
        }
        true
    }
}
