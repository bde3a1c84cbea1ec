//! States of tasks over time, as spans: who ran where, who could have run, who was blocked.

use super::machine::{RunWithoutEnd, SwitchIn, SwitchOut, TaskMachine};
use super::switch_state::SwitchOutState;
use super::task::{TaskId, Wakeup};
use super::wait::{Wait, WaitCause};

/// State of a task in a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanState {
    /// It runs on this CPU.
    Running(u32),
    /// It left its CPU in this state, and has not been woken since.
    Left(SwitchOutState),
    /// It was woken, or is new.
    Woken,
}

impl SpanState {
    /// As Perfetto shows it.
    pub fn text(self) -> &'static str {
        match self {
            SpanState::Running(_) => "Running",
            SpanState::Left(state) => state.text(),
            SpanState::Woken => "R",
        }
    }
}

/// Span in which the state of a task does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateSpan {
    /// The task.
    pub task: TaskId,
    /// From when.
    pub from: u64,
    /// Until when; `None`: its end is not in the recording.
    pub to: Option<u64>,
    /// In which state.
    pub state: SpanState,
    /// The wake-up that a span of waiting for a CPU begins with.
    pub waker: Option<Wakeup>,
    /// The wait before a run.
    pub wait: Option<Wait>,
    /// Events were lost in it, or it ends without a wake-up in the recording.
    pub is_uncertain: bool,
}

/// Spans that end with a switch: the run of who leaves, and the waits of who comes.
pub fn ended_spans(
    (time, cpu): (u64, u32),
    (out, next): (&SwitchOut, &SwitchIn),
    mut sink: impl FnMut(StateSpan),
) {
    if let Some(from) = out.since {
        sink(StateSpan {
            task: out.task,
            from,
            to: Some(time),
            state: SpanState::Running(cpu),
            waker: None,
            wait: Some(out.wait),
            is_uncertain: out.touches_loss,
        });
    }
    let wait = &next.wait;
    let span = |from, to, state| StateSpan {
        task: next.task,
        from,
        to: Some(to),
        state,
        waker: None,
        wait: None,
        is_uncertain: wait.touches_loss,
    };
    match (wait.left, wait.runnable, wait.cause) {
        (Some((left, state)), Some(_), WaitCause::Preempted) if left <= time => {
            sink(span(left, time, SpanState::Left(state)));
        }
        (left, Some(runnable), _) => {
            if let Some((left, state)) = left.filter(|(left, _)| *left < runnable) {
                sink(span(left, runnable, SpanState::Left(state)));
            }
            sink(StateSpan { waker: wait.woken, ..span(runnable, time, SpanState::Woken) });
        }
        // It slept, and what woke it was not seen.
        (Some((left, state)), None, _) if left <= time => {
            sink(StateSpan { is_uncertain: true, ..span(left, time, SpanState::Left(state)) });
        }
        _ => {}
    }
}

/// Span of a run on a CPU whose end is not in the recording.
pub fn span_without_end(run: &RunWithoutEnd, cpu: u32) -> StateSpan {
    StateSpan {
        task: run.task,
        from: run.since,
        to: None,
        state: SpanState::Running(cpu),
        waker: None,
        wait: Some(run.wait),
        is_uncertain: true,
    }
}

/// Spans that have not ended at the end of the recording.
pub fn open_spans(machine: &TaskMachine, mut sink: impl FnMut(StateSpan)) {
    let open = |task, from, state| StateSpan {
        task,
        from,
        to: None,
        state,
        waker: None,
        wait: None,
        is_uncertain: false,
    };
    let mut running = Vec::new();
    for cpu in 0..machine.cpu_count() as u32 {
        if let Some((task, since)) = machine.running_since(cpu) {
            running.push(task);
            let wait = machine.tasks.get(task).map(|task| task.wait);
            sink(StateSpan { wait, ..open(task, since, SpanState::Running(cpu)) });
        }
    }
    for (id, task) in machine.tasks.iter().filter(|(id, _)| !running.contains(id)) {
        let woken =
            task.woken.map(|w| StateSpan { waker: Some(w), ..open(id, w.time, SpanState::Woken) });
        match (task.left, woken) {
            (Some(left), None) => sink(open(id, left.time, SpanState::Left(left.state))),
            (Some(left), Some(woken)) if left.state.is_runnable() => {
                sink(StateSpan { state: SpanState::Left(left.state), from: left.time, ..woken });
            }
            (left, Some(woken)) => {
                if let Some(left) = left.filter(|left| left.time < woken.from) {
                    let span = open(id, left.time, SpanState::Left(left.state));
                    sink(StateSpan { to: Some(woken.from), ..span });
                }
                sink(woken);
            }
            (None, None) => {}
        }
    }
}
