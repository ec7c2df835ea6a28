//! Compares the lines of a file with their recorded checksums: which lines are intact, damaged,
//! missing, repeated or misplaced.
//!
//! Pure: it compares two lists of (length, checksum). Where they diverge, it searches for the
//! nearest position where they match again; the lines in between are damaged.

use std::collections::HashMap;

/// A line's length including its newline, and its checksum; `None` if the line is known to be
/// damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LineSum {
    pub len: u32,
    pub sum: Option<u32>,
}

impl LineSum {
    /// True if the found line matches this one.
    fn is_met_by(self, found: Self) -> bool {
        self.len == found.len && (self.sum == found.sum || self.sum.is_none())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineVerdict {
    /// Intact and in order.
    Whole,
    Moved,
    /// A duplicate of another line.
    Repeated,
    Damaged,
    /// Damaged, as recorded earlier.
    KnownDamaged,
    /// A line that was never written.
    Unknown,
    /// A line after the covered part.
    Uncovered,
}

/// A run of written lines that are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MissingLines {
    /// Index of the found line at or after its position; the number of lines if the run was at the
    /// end.
    pub before: usize,
    pub count: usize,
}

/// Result of the comparison.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Alignment {
    /// Verdict on each found line.
    pub verdicts: Vec<LineVerdict>,
    /// Missing lines without a damaged line in their place.
    pub missing: Vec<MissingLines>,
}

/// A range in which the lists differ.
struct Gap {
    found_from: usize,
    found_to: usize,
    written_from: usize,
    written_to: usize,
}

/// Compares the written with the found lines.
pub(super) fn align(written: &[LineSum], found: &[LineSum]) -> Alignment {
    let mut places: HashMap<LineSum, Vec<usize>> = HashMap::new();
    for (at, line) in written.iter().enumerate() {
        if line.sum.is_some() {
            places.entry(*line).or_default().push(at);
        }
    }
    let mut verdicts = Vec::with_capacity(found.len());
    let mut gaps: Vec<Gap> = Vec::new();
    let (mut w, mut f) = (0, 0);
    while let (Some(line), Some(here)) = (written.get(w), found.get(f)) {
        if line.is_met_by(*here) {
            verdicts.push(if line.sum.is_some() {
                LineVerdict::Whole
            } else {
                LineVerdict::KnownDamaged
            });
            (w, f) = (w + 1, f + 1);
            continue;
        }
        let (skip_found, skip_written) =
            nearest_meeting(&places, found, w, f).unwrap_or((found.len() - f, written.len() - w));
        gaps.push(Gap {
            found_from: f,
            found_to: f + skip_found,
            written_from: w,
            written_to: w + skip_written,
        });
        verdicts.extend(std::iter::repeat_n(LineVerdict::Unknown, skip_found));
        (w, f) = (w + skip_written, f + skip_found);
    }
    if w < written.len() {
        gaps.push(Gap {
            found_from: f,
            found_to: f,
            written_from: w,
            written_to: written.len(),
        });
    }
    verdicts.extend(std::iter::repeat_n(LineVerdict::Uncovered, found.len() - f));
    let missing = settle(&gaps, &places, found, &mut verdicts);
    Alignment { verdicts, missing }
}

/// Returns the smallest numbers of found and written lines to skip until the lists match again.
fn nearest_meeting(
    places: &HashMap<LineSum, Vec<usize>>,
    found: &[LineSum],
    w: usize,
    f: usize,
) -> Option<(usize, usize)> {
    let mut best: Option<(usize, usize)> = None;
    for (skip, line) in found.iter().skip(f).enumerate() {
        if best.is_some_and(|(a, b)| a + b <= skip) {
            break;
        }
        let next = places.get(line).and_then(|at| {
            let after = at.partition_point(|place| *place < w);
            at.get(after)
        });
        if let Some(place) = next
            && best.is_none_or(|(a, b)| skip + (place - w) < a + b)
        {
            best = Some((skip, place - w));
        }
    }
    best
}

/// Classifies the lines in the gaps as moved, repeated or damaged.
fn settle(
    gaps: &[Gap],
    places: &HashMap<LineSum, Vec<usize>>,
    found: &[LineSum],
    verdicts: &mut [LineVerdict],
) -> Vec<MissingLines> {
    let mut lost: HashMap<usize, bool> = gaps
        .iter()
        .flat_map(|gap| gap.written_from..gap.written_to)
        .map(|at| (at, true))
        .collect();
    for (line, verdict) in found.iter().zip(verdicts.iter_mut()) {
        let is_open = matches!(verdict, LineVerdict::Unknown | LineVerdict::Uncovered);
        let Some(written) = places.get(line).filter(|_| is_open) else {
            continue;
        };
        let still = written.iter().find(|place| lost.get(place) == Some(&true));
        *verdict = match still {
            Some(place) => {
                lost.insert(*place, false);
                LineVerdict::Moved
            }
            None => LineVerdict::Repeated,
        };
    }
    let mut missing = Vec::new();
    for gap in gaps {
        let count = (gap.written_from..gap.written_to)
            .filter(|at| lost.get(at) == Some(&true))
            .count();
        let mut is_explained = count == 0;
        for at in gap.found_from..gap.found_to {
            if let Some(verdict) = verdicts.get_mut(at)
                && *verdict == LineVerdict::Unknown
                && count > 0
            {
                *verdict = LineVerdict::Damaged;
                is_explained = true;
            }
        }
        if !is_explained {
            missing.push(MissingLines {
                before: gap.found_to,
                count,
            });
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use LineVerdict::{Damaged, KnownDamaged, Moved, Repeated, Uncovered, Unknown, Whole};

    fn lines(text: &str) -> Vec<LineSum> {
        text.chars()
            .map(|c| LineSum {
                len: 10,
                sum: (c != '?').then_some(u32::from(c)),
            })
            .collect()
    }

    fn check(written: &str, found: &str, verdicts: &[LineVerdict], missing: &[(usize, usize)]) {
        let result = align(&lines(written), &lines(found));
        let missing: Vec<MissingLines> = missing
            .iter()
            .map(|(before, count)| MissingLines {
                before: *before,
                count: *count,
            })
            .collect();
        assert_eq!(result.verdicts, verdicts, "{written} {found}");
        assert_eq!(result.missing, missing, "{written} {found}");
    }

    #[test]
    fn msg_11_checksum_diff_classifies_every_line() {
        check("abc", "abc", &[Whole; 3], &[]);
        check("abc", "axc", &[Whole, Damaged, Whole], &[]);
        check("abc", "ac", &[Whole, Whole], &[(1, 1)]);
        check("abc", "ab", &[Whole, Whole], &[(2, 1)]);
        check("abc", "bc", &[Whole, Whole], &[(0, 1)]);
        check("abc", "", &[], &[(0, 3)]);
        check("abcd", "acbd", &[Whole, Whole, Moved, Whole], &[]);
        check("abcd", "adbc", &[Whole, Moved, Whole, Whole], &[]);
        check("abcd", "adcb", &[Whole, Whole, Moved, Moved], &[]);
        check("abc", "abbc", &[Whole, Whole, Repeated, Whole], &[]);
        check("abc", "abxc", &[Whole, Whole, Unknown, Whole], &[]);
        check("abc", "abcx", &[Whole, Whole, Whole, Uncovered], &[]);
        check("abc", "abcb", &[Whole, Whole, Whole, Repeated], &[]);
        // Two lines that lost the newline between them, and one line split in two.
        check("abcd", "axd", &[Whole, Damaged, Whole], &[]);
        check("abc", "axyc", &[Whole, Damaged, Damaged, Whole], &[]);
        check("a?c", "axc", &[Whole, KnownDamaged, Whole], &[]);
        check("abc", "xyz", &[Damaged; 3], &[]);
    }
}
