//! The events of all CPUs as one stream in the order of time, while they happen.
//!
//! Each [`round`](Stream::round) reads every CPU's ring and hands out the events that no later one
//! can precede:
//!
//! ```text
//!            round 1       round 2
//!   CPU 0  --a----c---|------------f--|      round 2 hands out a, b, c: all that
//!   CPU 1  -----b-----|--e------------|      is not younger than c, the youngest
//!                                            event that round 1 saw
//! ```
//!
//! When round 2 begins, every event up to `c` is in its ring already, and round 2 reads all rings;
//! so what it reads completes the time up to `c`. An event is thus held for one round more, and a
//! quiet round hands out everything. No clock is asked, so that it holds for every trace clock that
//! all CPUs share. (A writer that is held up between taking its time and finishing its event for
//! longer than a round would come out late; it is then handed out immediately.)
//!
//! At most [`PAGES_A_ROUND`] pages of a CPU are read in a round, which bounds the memory; a CPU
//! that has more holds the others back to its own youngest event.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, BorrowedFd};

use kymo_format::ring::{Events, Missed, PageLayout, RingEvent};
use kymo_model::Endian;

use super::dir::TraceDir;
use super::error::FtraceError;
use super::pipe::RawPipe;

/// Pages of one CPU read in one round.
const PAGES_A_ROUND: usize = 256;

/// Something that comes out of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// An event.
    Event {
        /// CPU of the event.
        cpu: u32,
        /// When, on the directory's clock.
        time: u64,
        /// The event from `common_type` on.
        payload: &'a [u8],
    },
    /// Events of a CPU are missing here; how many, if the kernel says.
    Lost {
        /// CPU of the ring.
        cpu: u32,
        /// Number of lost events; `None` if the page had no room for it.
        count: Option<u64>,
    },
    /// A page that could not be read to its end.
    Damaged {
        /// CPU of the ring.
        cpu: u32,
    },
}

/// All CPUs' rings of a trace directory.
#[derive(Debug)]
pub struct Stream {
    rings: Vec<Ring>,
    layout: PageLayout,
    /// Pages that were handed out, to be filled again.
    spare: Vec<Vec<u8>>,
    /// The youngest event of all rounds.
    youngest: u64,
    /// The youngest event of the rounds before the last: until there the events are complete.
    complete: u64,
    /// CPUs of the pages of the last round that cannot be read.
    damaged: Vec<u32>,
}

#[derive(Debug)]
struct Ring {
    pipe: RawPipe,
    pages: VecDeque<Vec<u8>>,
    cursor: Cursor,
    /// The youngest event that was read.
    youngest: u64,
    emptied: bool,
}

/// Position of a ring in the first page of its queue.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    /// The next event; `None` if it is not looked at yet or the page has ended.
    next: Option<Next>,
    /// Position and time at which the walk continues after `next`.
    resume: Option<(usize, u64)>,
    /// Loss before `next` that has not been reported.
    lost: Option<Missed>,
}

#[derive(Clone, Copy, Debug)]
struct Next {
    time: u64,
    at: usize,
    len: usize,
}

impl Stream {
    /// Opens the rings of `cpus`. While it lives the instance cannot be removed.
    pub fn open(dir: &TraceDir, cpus: &[u32]) -> Result<Stream, FtraceError> {
        let text = dir.tracefs().header_page()?;
        let unusable = |_| FtraceError::Unexpected {
            path: dir.tracefs().path("events/header_page"),
            text: text.chars().take(60).collect(),
            expected: "the layout of a ring page",
        };
        let layout = PageLayout::parse(&text, Endian::NATIVE)
            .and_then(|l| l.with_page_size(dir.page_size() as u32))
            .map_err(unusable)?;
        let rings = cpus
            .iter()
            .map(|cpu| {
                Ok(Ring {
                    pipe: dir.raw_pipe(*cpu)?,
                    pages: VecDeque::new(),
                    cursor: Cursor::default(),
                    youngest: 0,
                    emptied: true,
                })
            })
            .collect::<Result<Vec<Ring>, FtraceError>>()?;
        Ok(Stream {
            rings,
            layout,
            spare: Vec::new(),
            youngest: 0,
            complete: 0,
            damaged: Vec::new(),
        })
    }

    /// Descriptors that can be waited for (see [`super::wait_readable`]).
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.iter().map(|r| r.pipe.as_fd())
    }

    /// Whether events were read that a next round would hand out.
    pub fn pending(&self) -> bool {
        self.rings.iter().any(|r| !r.pages.is_empty())
    }

    /// Reads what there is and hands out what is complete; `last` hands out everything. Returns
    /// whether there is more to read immediately. When `sink` breaks off, what was not handed out
    /// stays for the next round.
    pub fn round(
        &mut self,
        last: bool,
        sink: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Result<bool, FtraceError> {
        let more = self.read(&mut |_, _| {})?;
        self.hand_out(last, sink);
        Ok(more)
    }

    /// First half of a [`round`](Stream::round): reads the rings. `sight` sees the time and payload
    /// of each event as soon as it is read, before it is its turn: for callers that must inspect
    /// the task while it still exists. Returns whether there is more to read immediately.
    pub fn read(&mut self, sight: &mut dyn FnMut(u64, &[u8])) -> Result<bool, FtraceError> {
        self.complete = self.youngest;
        for i in 0..self.rings.len() {
            self.fill(i, sight)?;
        }
        self.youngest = self.rings.iter().map(|r| r.youngest).fold(self.youngest, u64::max);
        Ok(self.has_more())
    }

    fn has_more(&self) -> bool {
        self.rings.iter().any(|r| !r.emptied)
    }

    /// Second half of a [`round`](Stream::round).
    pub fn hand_out(&mut self, last: bool, sink: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>) {
        for cpu in std::mem::take(&mut self.damaged) {
            let _ = sink(Item::Damaged { cpu });
        }
        let complete = self.complete;
        let limit = if last && !self.has_more() {
            u64::MAX
        } else {
            let limits = self.rings.iter().map(|r| if r.emptied { complete } else { r.youngest });
            limits.min().unwrap_or(complete)
        };
        self.hand_out_until(limit, sink);
    }

    /// Reads one ring's pages.
    fn fill(&mut self, i: usize, sight: &mut dyn FnMut(u64, &[u8])) -> Result<(), FtraceError> {
        let Some(ring) = self.rings.get_mut(i) else { return Ok(()) };
        ring.emptied = false;
        while ring.pages.len() < PAGES_A_ROUND {
            let mut page = self.spare.pop().unwrap_or_default();
            page.resize(ring.pipe.page_size(), 0);
            let Some(n) = ring.pipe.read(&mut page)? else {
                ring.emptied = true;
                self.spare.push(page);
                return Ok(());
            };
            page.truncate(n);
            match self.layout.page(&page) {
                Ok(opened) => {
                    // The walk is cheap beside what follows, and memory is warm.
                    let mut youngest = opened.timestamp;
                    for event in opened.events().filter_map(Result::ok) {
                        youngest = event.time;
                        sight(event.time, event.payload);
                    }
                    ring.youngest = ring.youngest.max(youngest);
                    ring.pages.push_back(page);
                }
                Err(_) => {
                    self.damaged.push(ring.pipe.cpu());
                    self.spare.push(page);
                }
            }
        }
        Ok(())
    }

    /// Hands out events up to `limit`, in order; of equal times the lower CPU's first,
    /// as the kernel's `trace` file has it.
    fn hand_out_until(&mut self, limit: u64, sink: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>) {
        let layout = self.layout;
        loop {
            // The oldest ring, and how far it may run before another is older.
            let (mut first, mut bound) = (None, (limit, usize::MAX));
            for (i, ring) in self.rings.iter_mut().enumerate() {
                let Some(time) = ring.peek(&layout, &mut self.spare, sink) else { continue };
                match first {
                    None => first = Some((time, i)),
                    Some(best) if (time, i) < best => {
                        bound = bound.min(best);
                        first = Some((time, i));
                    }
                    Some(_) => bound = bound.min((time, i)),
                }
            }
            let Some((time, i)) = first else { return };
            if time > limit {
                return;
            }
            let Some(ring) = self.rings.get_mut(i) else { return };
            let within = |time| time <= limit && (time, i) <= bound;
            if ring.run(&layout, &within, sink).is_break() {
                return;
            }
        }
    }
}

impl Ring {
    /// The time of the next event, if there is one. Opens pages on the way.
    fn peek(
        &mut self,
        layout: &PageLayout,
        spare: &mut Vec<Vec<u8>>,
        sink: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Option<u64> {
        loop {
            if let Some(next) = self.cursor.next {
                return Some(next.time);
            }
            let bytes = self.pages.front()?;
            if let Ok(page) = layout.page(bytes) {
                let mut events = match self.cursor.resume {
                    Some((at, time)) => page.events().resume(at, time),
                    None => {
                        // A page without events carries its loss on to the next.
                        self.cursor.lost = page.missed.or(self.cursor.lost);
                        page.events()
                    }
                };
                match events.next() {
                    Some(Ok(event)) => {
                        self.cursor.keep(&event, &events);
                        continue;
                    }
                    Some(Err(_)) => drop(sink(Item::Damaged { cpu: self.pipe.cpu() })),
                    None => {}
                }
            }
            self.cursor = Cursor { lost: self.cursor.lost, ..Cursor::default() };
            spare.extend(self.pages.pop_front());
        }
    }

    /// Passes the event that [`peek`](Ring::peek) read, and the others of its page, to `sink`
    /// while `within` accepts their times.
    fn run(
        &mut self,
        layout: &PageLayout,
        within: &dyn Fn(u64) -> bool,
        sink: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let cpu = self.pipe.cpu();
        if let Some(missed) = self.cursor.lost.take() {
            let count = match missed {
                Missed::Count(n) => Some(n),
                Missed::Unknown => None,
            };
            sink(Item::Lost { cpu, count })?;
        }
        let (Some(next), Some((at, time))) = (self.cursor.next.take(), self.cursor.resume) else {
            return ControlFlow::Continue(());
        };
        let Some(page) = self.pages.front().and_then(|bytes| layout.page(bytes).ok()) else {
            return ControlFlow::Continue(());
        };
        let payload = page.data.get(next.at - page.start..).and_then(|p| p.get(..next.len));
        let mut flow =
            sink(Item::Event { cpu, time: next.time, payload: payload.unwrap_or_default() });
        let mut events = page.events().resume(at, time);
        while flow.is_continue() {
            // What is no event is left to `peek`.
            let before = (events.position(), events.time());
            match events.next() {
                Some(Ok(event)) if within(event.time) => {
                    flow = sink(Item::Event { cpu, time: event.time, payload: event.payload });
                }
                Some(Ok(event)) => {
                    self.cursor.keep(&event, &events);
                    return flow;
                }
                _ => {
                    self.cursor.resume = Some(before);
                    return flow;
                }
            }
        }
        self.cursor.resume = Some((events.position(), events.time()));
        flow
    }
}

impl Cursor {
    fn keep(&mut self, event: &RingEvent<'_>, events: &Events<'_>) {
        self.next = Some(Next { time: event.time, at: event.offset, len: event.payload.len() });
        self.resume = Some((events.position(), events.time()));
    }
}
