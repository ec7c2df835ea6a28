//! A recording as an animated picture: an SVG with CSS animations, without scripts, in the reader's
//! system fonts. Without animation, by choice of the reader or without CSS support, it shows the
//! last step.

use std::fmt::Write as _;

use super::paint::{Style, StyledLine, StyledRun};

/// Width of a column, in hundredths of a pixel.
const COLUMN: usize = 840;
/// Height of a row, in pixels.
const ROW: usize = 18;
/// Space around, in pixels.
const EDGE: usize = 14;
/// Baseline of the letters in their row, in pixels from its top.
const BASE: usize = 14;

/// The background, the usual color of text, and the 16 colors of terminals.
const BACKGROUND: &str = "#11151c";
const TEXT: &str = "#d5dae1";
const COLORS: [&str; 16] = [
    "#5c6370", "#f28b82", "#81c995", "#fdd663", "#8ab4f8", "#d7aefb", "#78d9ec", "#e8eaed",
    "#80868b", "#f6aea9", "#a8dab5", "#fde293", "#aecbfa", "#e9d2fd", "#a1e4f2", "#ffffff",
];

/// First and last step in which something is shown.
type Interval = (usize, usize);

/// The picture of a recording: its title, its columns and rows, and each step with its milliseconds.
#[must_use]
pub fn picture(
    title: &str,
    (columns, rows): (u16, u16),
    frames: &[(Vec<StyledLine>, u64)],
) -> String {
    let width = 2 * EDGE + (usize::from(columns) * COLUMN).div_ceil(100);
    let height = 2 * EDGE + usize::from(rows) * ROW;
    let mut intervals = Vec::new();
    let mut body = String::new();
    for row in 0..usize::from(rows) {
        for (interval, line) in shown_in(row, frames) {
            let class = class_of(interval, frames.len(), &mut intervals);
            draw(&mut body, row, line, class);
        }
    }
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\">\n<title>{}</title>\n<style>\n",
        escaped(title)
    );
    style(&mut svg, &intervals, frames);
    writeln!(
        svg,
        "</style>\n<rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{BACKGROUND}\"/>"
    )
    .unwrap();
    svg.push_str(&body);
    svg.push_str("</svg>\n");
    svg
}

/// Lines of a row with the steps in which they are visible, without blank ones.
fn shown_in(row: usize, frames: &[(Vec<StyledLine>, u64)]) -> Vec<(Interval, &StyledLine)> {
    let mut shown: Vec<(Interval, &StyledLine)> = Vec::new();
    for (step, (lines, _)) in frames.iter().enumerate() {
        let Some(line) = lines.get(row).filter(|line| !line.is_empty()) else {
            continue;
        };
        match shown.last_mut() {
            Some(((_, end), last)) if *end == step && *last == line => *end = step + 1,
            _ => shown.push(((step, step + 1), line)),
        }
    }
    shown
}

/// Number of an interval's class; none if it covers the whole recording.
fn class_of(interval: Interval, steps: usize, known: &mut Vec<Interval>) -> Option<usize> {
    if interval == (0, steps) {
        return None;
    }
    let found = known.iter().position(|one| *one == interval);
    Some(found.unwrap_or_else(|| {
        known.push(interval);
        known.len() - 1
    }))
}

fn style(svg: &mut String, intervals: &[Interval], frames: &[(Vec<StyledLine>, u64)]) {
    let whole: u64 = frames.iter().map(|(_, ms)| ms).sum();
    let percent = |step: usize| {
        let before: u64 = frames.iter().take(step).map(|(_, ms)| ms).sum();
        let thousandths = before * 100_000 / whole;
        format!("{}.{:03}%", thousandths / 1000, thousandths % 1000)
    };
    let fonts = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace";
    writeln!(
        svg,
        "text{{font:14px {fonts};white-space:pre;fill:{TEXT}}}\n.b{{font-weight:700}}\n.d{{opacity:.6}}"
    )
    .unwrap();
    for (number, color) in COLORS.iter().enumerate() {
        writeln!(svg, ".c{number}{{fill:{color}}}").unwrap();
    }
    for (number, (begin, end)) in intervals.iter().enumerate() {
        let is_last = *end == frames.len();
        let base = if is_last { "visible" } else { "hidden" };
        let seconds = format!("{}.{:03}s", whole / 1000, whole % 1000);
        writeln!(
            svg,
            ".i{number}{{visibility:{base};animation:k{number} {seconds} step-end infinite}}"
        )
        .unwrap();
        let mut keys = String::new();
        if *begin > 0 {
            keys.push_str("0%{visibility:hidden}");
        }
        write!(keys, "{}{{visibility:visible}}", percent(*begin)).unwrap();
        if !is_last {
            write!(keys, "{}{{visibility:hidden}}", percent(*end)).unwrap();
        }
        writeln!(svg, "@keyframes k{number}{{{keys}}}").unwrap();
    }
    svg.push_str("@media(prefers-reduced-motion:reduce){*{animation:none!important}}\n");
}

fn draw(body: &mut String, row: usize, line: &StyledLine, class: Option<usize>) {
    let class = class.map_or(String::new(), |number| format!(" class=\"i{number}\""));
    writeln!(body, "<g{class}>").unwrap();
    for run in line {
        draw_run(body, row, run);
    }
    body.push_str("</g>\n");
}

fn draw_run(body: &mut String, row: usize, run: &StyledRun) {
    let letters = run.text.chars().count();
    let (x, width) = (
        pixels(EDGE * 100 + run.column * COLUMN),
        pixels(letters * COLUMN),
    );
    let top = EDGE + row * ROW;
    let Style {
        color,
        is_bold,
        is_dim,
        is_reverse,
    } = run.style;
    if is_reverse {
        writeln!(
            body,
            "<rect x=\"{x}\" y=\"{top}\" width=\"{width}\" height=\"{ROW}\" fill=\"{TEXT}\"/>"
        )
        .unwrap();
    }
    let mut classes = Vec::new();
    classes.extend(is_bold.then(|| "b".to_owned()));
    classes.extend((is_dim && !is_reverse).then(|| "d".to_owned()));
    classes.extend(color.map(|color| format!("c{color}")));
    let class = match classes.as_slice() {
        [] => String::new(),
        _ => format!(" class=\"{}\"", classes.join(" ")),
    };
    let fill = if is_reverse {
        format!(" style=\"fill:{BACKGROUND}\"")
    } else {
        String::new()
    };
    writeln!(
        body,
        "<text x=\"{x}\" y=\"{}\" textLength=\"{width}\"{class}{fill}>{}</text>",
        top + BASE,
        escaped(&run.text)
    )
    .unwrap();
}

/// Hundredths of a pixel, as pixels.
fn pixels(hundredths: usize) -> String {
    let text = format!("{}.{:02}", hundredths / 100, hundredths % 100);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cast::paint;

    #[test]
    fn unchanged_line_is_drawn_once_and_the_last_frame_remains() {
        let step = |text: &str, ms| (paint::lines(text), ms);
        let frames = [
            step("$ a", 1_000),
            step("$ a\n<b> & c", 500),
            step("$ a\nd", 500),
        ];
        let svg = picture("three <steps>", (10, 2), &frames);
        for (text, times) in [
            (">$ a</text>", 1),
            (">&lt;b&gt; &amp; c</text>", 1),
            ("<title>three &lt;steps&gt;</title>", 1),
            ("visibility:visible;animation:k", 1),
            (
                "@keyframes k0{0%{visibility:hidden}50.000%{visibility:visible}75.000%{visibility:hidden}}",
                1,
            ),
            ("<script", 0),
        ] {
            assert_eq!(svg.matches(text).count(), times, "{text}: {svg}");
        }
    }
}
