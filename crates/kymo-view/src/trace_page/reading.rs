//! Progress page of a served address while its recording is read: the events over time, as far as
//! they are known, and the share that was read. It reloads itself until the page is ready.

use std::fmt::Write as _;

use kymo_analysis::tracks::ReadSoFar;

use super::hash;

/// Width and height of the picture.
const WIDTH: usize = 1000;
const HEIGHT: u64 = 120;

const STYLE: &str = "\
:root{color-scheme:light dark;font:14px/1.5 system-ui,sans-serif}body{margin:32px}\
h1{font-size:16px;overflow-wrap:anywhere}svg{width:100%;height:160px;border:1px solid #8886}\
path{fill:#2463c4}.unread{fill:#8884}";
/// The address keeps its fragment.
const SCRIPT: &str = "setTimeout(() => location.reload(), 500);";

/// The page of a recording that is being read. `span`: its first and last time, where known
/// before that.
pub fn reading_page(title: &str, span: Option<(u64, u64)>, read: &ReadSoFar) -> Vec<u8> {
    let (begin, end) = span.filter(|s| s.0 < s.1).unwrap_or((read.base, read.last));
    let length = (end.saturating_sub(begin)).max(1);
    let place = |time: u64| {
        let time = read.base.saturating_add(time).saturating_sub(begin).min(length);
        (u128::from(time) * WIDTH as u128 / u128::from(length)) as usize
    };
    let mut counts = vec![0u64; WIDTH + 1];
    for (time, count) in read.bins() {
        if let Some(sum) = counts.get_mut(place(time)) {
            *sum += count;
        }
    }
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let mut bars = String::new();
    for (x, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let height = (count * HEIGHT).div_ceil(most);
        _ = write!(bars, "M{x} {HEIGHT}v-{height}h1v{height}z");
    }
    let is_known = span.is_some() && read.events > 0;
    let seen = place(read.last.saturating_sub(read.base));
    let share =
        if is_known { format!(", {} % of its time", seen * 100 / WIDTH) } else { String::new() };
    let unread = if is_known {
        format!(
            "<rect class=\"unread\" x=\"{seen}\" width=\"{}\" height=\"{HEIGHT}\"/>",
            WIDTH - seen
        )
    } else {
        String::new()
    };
    let title = escape(title);
    let page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src '{}'; \
         style-src '{}'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>kymo view: reading</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n\
         <p role=\"status\">The recording is being read: {} events so far{share}. \
         The page comes when all of it is.</p>\n\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"events over time, as far as they are read\">{unread}<path d=\"{bars}\"/></svg>\n\
         <p>Events over time; what is gray is not read yet.</p>\n\
         <script>{SCRIPT}</script>\n</body>\n</html>\n",
        hash(SCRIPT),
        hash(STYLE),
        read.events,
    );
    page.into_bytes()
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test is a panic")]
mod tests {
    use super::*;
    use kymo_analysis::tracks::TrackProgress;

    #[test]
    fn what_is_read_has_bars_and_the_rest_is_gray() {
        let progress = TrackProgress::default();
        progress.note_times(1000, &[0, 10, 10, 499]);
        let text =
            |title, span| String::from_utf8(reading_page(title, span, &progress.so_far())).unwrap();
        let page = text("<b>\"x\" & y", Some((1000, 2000)));
        assert!(page.contains("<h1>&lt;b&gt;&quot;x&quot; &amp; y</h1>"), "{page}");
        assert!(page.contains("4 events so far, 49 % of its time."), "{page}");
        assert!(
            page.contains("d=\"M0 120v-60h1v60zM10 120v-120h1v120zM499 120v-60h1v60z\""),
            "{page}"
        );
        assert!(page.contains("x=\"499\" width=\"501\""), "{page}");
        let page = text("", None);
        assert!(!page.contains("% of its time") && !page.contains("class=\"unread\""), "{page}");
        let page = reading_page("", None, &TrackProgress::default().so_far());
        assert!(String::from_utf8(page).unwrap().contains("0 events so far."));
    }
}
