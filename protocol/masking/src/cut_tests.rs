//! Goal: if a line that contains a value is cut, no part of the value is readable, in any form of
//! the value.
//!
//! Method: the value is written in every form, and in random mixtures of all escapes, between
//! filler bytes that share no letter with it. The line is cut at every possible position and both
//! parts are masked. Except for escape characters next to the mask, only the filler remains.

use proptest::prelude::*;

use super::*;

/// Contains only letters and symbols that no filler contains, including ones that the forms escape.
const VALUE: &str = "qz\"/Q\u{20ac}\n%+é😀W";
/// Filler after the value.
const BEHIND: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

fn masks() -> MaskTable {
    let mut masks = MaskTable::default();
    masks.add(&[VALUE]).unwrap();
    masks
}

/// Quotes a text as JSON `times` times.
fn quoted(written: &str, times: usize) -> String {
    (0..times).fold(written.to_owned(), |text, _| json_escaped(&text))
}

fn unit(c: char, is_upper: bool) -> String {
    let mut units = [0; 2];
    let units = c.encode_utf16(&mut units).iter();
    let written = units.map(|unit| match is_upper {
        true => format!("\\u{unit:04X}"),
        false => format!("\\u{unit:04x}"),
    });
    written.collect()
}

fn percent(text: &str, is_upper: bool) -> String {
    let written = text.bytes().map(|byte| match is_upper {
        true => format!("%{byte:02X}"),
        false => format!("%{byte:02x}"),
    });
    written.collect()
}

/// All forms that escape the value uniformly.
fn all_forms() -> Vec<String> {
    let units = |is_upper| VALUE.chars().map(|c| unit(c, is_upper)).collect::<String>();
    let slashes = json_escaped(VALUE).replace('/', "\\/");
    let query = percent_encoded(&json_escaped(VALUE), true, "%20");
    let mut all = forms(VALUE);
    for times in 0..3 {
        all.push(quoted(VALUE, times + 1));
        all.push(quoted(&slashes, times));
        all.push(quoted(&units(true), times));
        all.push(quoted(&units(false), times));
        all.push(quoted(&ascii_escaped(VALUE), times));
    }
    for is_upper in [true, false] {
        all.push(percent(VALUE, is_upper));
        all.push(percent(&json_escaped(VALUE), is_upper));
        all.push(json_escaped(&percent(VALUE, is_upper)));
    }
    all.push(query);
    all
}

fn without_marks(text: &str) -> String {
    text.replace('\\', "")
}

/// Masks both parts of a line that is cut within its first `length` bytes.
fn masked_in_parts(masks: &MaskTable, line: &str, length: usize) -> String {
    let bytes = line.as_bytes();
    let cut = masks.cut_beside_values(bytes.get(..length).unwrap());
    assert!(cut > 0 && cut <= length, "{cut} of {length}");
    let (head, rest) = bytes.split_at(cut);
    let text = |part: &[u8]| {
        let part = String::from_utf8_lossy(part).into_owned();
        masks.text(&part).into_owned()
    };
    format!("{}{}", text(head), text(rest))
}

/// Tests every length at which a line may be cut.
fn look_everywhere(masks: &MaskTable, (before, written, behind): (&str, &str, &str)) {
    let line = format!("{before}{written}{behind}");
    let expected = without_marks(&format!("{before}{MASK}{behind}"));
    assert_eq!(without_marks(&masks.text(&line)), expected, "{line}");
    for length in before.len().saturating_sub(20)..=line.len() {
        let masked = masked_in_parts(masks, &line, length);
        assert_eq!(without_marks(&masked), expected, "{length} bytes of {line}");
    }
}

#[test]
fn sec_2_secret_in_any_encoding_is_never_split_by_a_cut() {
    let masks = masks();
    let forms = all_forms();
    assert!(forms.len() > 30);
    let fillers = ["a", "a\\\\", "b\\u0061", "%61b"];
    for (written, filler) in forms.iter().zip(fillers.iter().cycle()) {
        let room = 2 * written.len();
        let before = filler.repeat(room.div_ceil(filler.len()));
        look_everywhere(&masks, (&before, written, BEHIND));
    }
}

/// One character of the value, in a random JSON form.
fn any_way(c: char) -> impl Strategy<Value = String> {
    (0..4_u8).prop_map(move |way| match way {
        0 => unit(c, true),
        1 => unit(c, false),
        2 if c == '/' => "\\/".to_owned(),
        _ => json_escaped(&c.to_string()),
    })
}

/// One character, in a random URL form.
fn any_percent(c: char) -> impl Strategy<Value = String> {
    (0..3_u8).prop_map(move |way| match way {
        0 => percent(&c.to_string(), true),
        1 => percent(&c.to_string(), false),
        // Reserved characters are never written verbatim.
        _ if c == '%' || c == '\n' => percent(&c.to_string(), true),
        _ => c.to_string(),
    })
}

fn written_somehow() -> impl Strategy<Value = String> {
    let json: Vec<_> = VALUE.chars().map(any_way).collect();
    let url: Vec<_> = VALUE.chars().map(any_percent).collect();
    prop_oneof![
        (json, 0..3_usize).prop_map(|(parts, times)| quoted(&parts.concat(), times)),
        (url, 0..2_usize).prop_map(|(parts, times)| quoted(&parts.concat(), times)),
    ]
}

fn filler() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("a".to_owned()),
        Just("é".to_owned()),
        Just("\\\\".to_owned()),
        Just("\\t".to_owned()),
        Just("\\u0061".to_owned()),
        Just("%61".to_owned()),
        Just("50% ".to_owned()),
    ];
    prop::collection::vec(piece, 1..8).prop_map(|pieces| pieces.concat() + "a")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn sec_2_value_is_never_cut_in_two_in_any_notation(
        written in written_somehow(),
        (before, behind) in (filler(), filler()),
    ) {
        let room = 2 * written.len();
        let before = before.repeat(room.div_ceil(before.len()));
        look_everywhere(&masks(), (&before, &written, &behind));
    }
}
