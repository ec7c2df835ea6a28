//! The same bytes produce the same events, regardless of chunk boundaries.

use crate::{TRANSCRIPTS, read, transcript};

#[test]
fn proto_1_a_cut_at_every_byte_changes_nothing() {
    for (name, format) in TRANSCRIPTS {
        let bytes = transcript(name);
        let whole = read(format, &[&bytes]);
        assert!(whole.len() > 2, "{name}: {whole:?}");
        for at in 0..=bytes.len() {
            let (head, tail) = bytes.split_at(at);
            assert_eq!(read(format, &[head, tail]), whole, "{name} cut at {at}");
        }
        let bytewise: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(format, &bytewise), whole, "{name} byte by byte");
    }
}

#[test]
fn proto_1_damaged_input_in_any_chunks_parses_alike() {
    let rounds = match std::env::var("GOONDAN_TEST_CLI_AGENT_ROUNDS") {
        Ok(rounds) => rounds.parse().unwrap(),
        Err(_) => 300,
    };
    let tags: [&[u8]; 8] = [
        b"\n[ERROR]\n",
        b"\n[/ERROR]\n",
        b"\n```\n",
        b"\n=== PHASE 3 COMPLETE ===\n",
        b"\xf0\x9f",
        b"\x1b[",
        b"\r",
        b"\0",
    ];
    for seed in 0..rounds {
        let mut random = fastrand::Rng::with_seed(seed);
        let (name, format) = TRANSCRIPTS[random.usize(..TRANSCRIPTS.len())];
        let mut bytes = transcript(name);
        for _ in 0..random.usize(1..12) {
            let at = random.usize(..bytes.len());
            match random.u8(..4) {
                0 => bytes[at] = random.u8(..),
                1 => {
                    bytes.remove(at);
                }
                2 => {
                    bytes.splice(at..at, tags[random.usize(..tags.len())].iter().copied());
                }
                _ => {
                    let end = (at + random.usize(..200)).min(bytes.len());
                    let copied = bytes[at..end].to_vec();
                    bytes.splice(at..at, copied);
                }
            }
        }
        let whole = read(format, &[&bytes]);
        let mut pieces: Vec<&[u8]> = Vec::new();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (piece, next) = rest.split_at(random.usize(1..=rest.len().min(97)));
            pieces.push(piece);
            rest = next;
        }
        assert_eq!(read(format, &pieces), whole, "{name}, seed {seed}");
    }
}
