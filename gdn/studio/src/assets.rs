//! Files of the page: built from `web/` by its `build.mjs`, committed, and embedded in this
//! program.

use std::io::Write as _;
use std::sync::OnceLock;

use flate2::Compression;
use flate2::write::GzEncoder;

/// One file of the page.
#[derive(Debug)]
pub(crate) struct Asset {
    path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
    zipped: OnceLock<Vec<u8>>,
}

macro_rules! assets {
    ($($path:literal: $kind:literal = $file:literal;)+) => {
        static ASSETS: [Asset; [$($path),+].len()] = [$(Asset {
            path: $path,
            kind: $kind,
            bytes: include_bytes!(concat!("../web/dist/", $file)),
            zipped: OnceLock::new(),
        }),+];
    };
}

assets! {
    "/": "text/html; charset=utf-8" = "index.html";
    "/assets/studio.js": "text/javascript; charset=utf-8" = "assets/studio.js";
    "/assets/rich.js": "text/javascript; charset=utf-8" = "assets/rich.js";
    "/assets/icon.svg": "image/svg+xml" = "assets/icon.svg";
}

impl Asset {
    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    pub(crate) fn bytes(&self) -> &'static [u8] {
        self.bytes
    }

    /// The file compressed with gzip.
    pub(crate) fn zipped(&'static self) -> &'static [u8] {
        self.zipped.get_or_init(|| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            // Writing to memory cannot fail; an empty result would be sent instead of a truncated
            // page.
            let written = encoder
                .write_all(self.bytes)
                .and_then(|()| encoder.finish());
            written.unwrap_or_default()
        })
    }
}

pub(crate) fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    /// Maximum transfer size of the whole page.
    const PAGE_BYTES_MAX: usize = 200_000;

    #[test]
    fn obs_5_the_page_is_small_and_arrives_whole() {
        let mut sent = 0;
        for asset in &ASSETS {
            let mut read = Vec::new();
            GzDecoder::new(asset.zipped())
                .read_to_end(&mut read)
                .unwrap();
            assert_eq!(read, asset.bytes(), "{}", asset.path);
            sent += asset.zipped().len();
        }
        assert!(sent <= PAGE_BYTES_MAX, "{sent} bytes");
    }

    #[test]
    fn the_page_names_only_files_that_are_there() {
        let page = std::str::from_utf8(find("/").unwrap().bytes()).unwrap();
        // Relative, because a proxy may serve the page below a path.
        let named = page.split('"').filter(|text| text.starts_with("assets/"));
        let mut count = 0;
        for path in named {
            assert!(find(&format!("/{path}")).is_some(), "{path}");
            count += 1;
        }
        assert!(count > 0, "{page}");
        assert!(find("/assets/../Cargo.toml").is_none());
    }
}
