//! Spans and events of the `tracing` crate: `tracing:error` … `tracing:trace`, and
//! `tracing:span_new`, `span_enter`, `span_exit`, `span_close`. A span is known by its number,
//! which `span_new` ties to its name and fields. Text is made only while a session listens.

use std::fmt::Write as _;

use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id};
use tracing_core::{Event, Subscriber};
use tracing_subscriber::layer::Context;

use crate::{emit, tracepoint, tracepoint_class};

/// One event per level, so that sessions can choose by name or by level.
macro_rules! events {
    ($($name:ident: $level:ident;)*) => {$(
        tracepoint! {
            /// An event of the `tracing` crate; `span` is 0 outside of all spans.
            tracing: $name(span: u64, target: &str, message: &str, fields: &str) {
                fields { span: u64 = span, target: str = target, message: str = message, fields: str = fields }
                print "{target}: {message} {fields}"
                level crate::Level::$level
            }
        }
    )*};
}

events! {
    error: Error;
    warn: Warning;
    info: Info;
    debug: DebugProgram;
    trace: Debug;
}

tracepoint! {
    /// A span has been made; `parent` is 0 if it has none.
    tracing: span_new(span: u64, parent: u64, name: &str, target: &str, fields: &str) {
        fields {
            span: u64 = span,
            parent: u64 = parent,
            name: str = name,
            target: str = target,
            fields: str = fields,
        }
        print "{span} {name} {fields}"
        level crate::Level::Info
    }
}

tracepoint_class! {
    tracing: span(span: u64) {
        fields { span: u64 = span }
        print "{span}"
        level crate::Level::Info
    }
    events {
        /// A thread has entered a span.
        span_enter;
        /// A thread has left a span.
        span_exit;
        /// A span is over.
        span_close;
    }
}

/// A layer that hands spans and events to the listeners.
///
/// ```
/// use tracing_subscriber::layer::SubscriberExt as _;
///
/// let subscriber = tracing_subscriber::registry().with(kymo_tracepoint::spans::SpanLayer);
/// ```
pub struct SpanLayer;

/// Fields as text: `key=value …`, the message apart.
#[derive(Default)]
struct Texts {
    message: String,
    fields: String,
}

impl Visit for Texts {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            self.record_debug(field, &value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a String cannot fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            let space = if self.fields.is_empty() { "" } else { " " };
            write!(self.fields, "{space}{}={value:?}", field.name())
        };
    }
}

impl<S: Subscriber> tracing_subscriber::Layer<S> for SpanLayer {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let level = *event.metadata().level();
        let listens = match level {
            tracing_core::Level::ERROR => error::enabled(),
            tracing_core::Level::WARN => warn::enabled(),
            tracing_core::Level::INFO => info::enabled(),
            tracing_core::Level::DEBUG => debug::enabled(),
            _ => trace::enabled(),
        };
        if !listens {
            return;
        }
        let mut texts = Texts::default();
        event.record(&mut texts);
        let current = context.current_span();
        let span = event.parent().or(current.id().filter(|_| event.is_contextual()));
        let span = span.map_or(0, |id| id.into_u64());
        let (target, Texts { message, fields }) = (event.metadata().target(), texts);
        match level {
            tracing_core::Level::ERROR => emit!(error(span, target, &message, &fields)),
            tracing_core::Level::WARN => emit!(warn(span, target, &message, &fields)),
            tracing_core::Level::INFO => emit!(info(span, target, &message, &fields)),
            tracing_core::Level::DEBUG => emit!(debug(span, target, &message, &fields)),
            _ => emit!(trace(span, target, &message, &fields)),
        }
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if !span_new::enabled() {
            return;
        }
        let mut texts = Texts::default();
        attributes.record(&mut texts);
        let current = context.current_span();
        let parent = attributes.parent().or(current.id().filter(|_| attributes.is_contextual()));
        let parent = parent.map_or(0, |id| id.into_u64());
        let metadata = attributes.metadata();
        let (name, target) = (metadata.name(), metadata.target());
        emit!(span_new(id.into_u64(), parent, name, target, &texts.fields));
    }

    fn on_enter(&self, id: &Id, _: Context<'_, S>) {
        emit!(span_enter(id.into_u64()));
    }

    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        emit!(span_exit(id.into_u64()));
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        emit!(span_close(id.into_u64()));
    }
}
