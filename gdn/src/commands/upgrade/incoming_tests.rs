use super::*;

enum ArchiveItem<'p> {
    File(&'p str, &'p str),
    Link(&'p str, EntryType),
}

const WHOLE: [ArchiveItem<'_>; 4] = [
    ArchiveItem::File("gdn", "g"),
    ArchiveItem::File("goondan-orchestrator", "o"),
    ArchiveItem::File("goondan-agent-process", "a"),
    ArchiveItem::File("goondan-connector-process", "c"),
];

struct StagingFixture {
    dir: TempDir,
    installation: Installation,
}

impl StagingFixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let installation = Installation::at(dir.path().join("prefix"));
        fs::create_dir_all(installation.versions()).unwrap();
        Self { dir, installation }
    }

    fn archive<'p>(&self, puts: impl IntoIterator<Item = &'p ArchiveItem<'p>>) -> PathBuf {
        let path = self.dir.path().join("a.tar.gz");
        let gzip = flate2::GzBuilder::new();
        let file = File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .open(&path);
        let mut tar = tar::Builder::new(gzip.write(file.unwrap(), flate2::Compression::fast()));
        for put in puts {
            let mut header = tar::Header::new_old();
            let (name, content) = match put {
                ArchiveItem::File(name, content) => (name, *content),
                ArchiveItem::Link(name, kind) => {
                    header.set_entry_type(*kind);
                    header.set_link_name("/etc/passwd").unwrap();
                    (name, "")
                }
            };
            // The crate would refuse to write hostile names.
            let raw = header.as_old_mut();
            raw.name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_mode(0o755);
            header.set_size(content.len() as u64);
            header.set_cksum();
            tar.append(&header, content.as_bytes()).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap();
        path
    }

    fn take(&self, archive: &Path) -> Result<StagedVersion, SourceError> {
        StagedVersion::take(archive, None, &self.installation)
    }

    #[track_caller]
    fn refuses<'p>(&self, puts: impl IntoIterator<Item = &'p ArchiveItem<'p>>, problem: &str) {
        let archive = self.archive(puts);
        let error = self.take(&archive).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
        let left = fs::read_dir(self.installation.versions()).unwrap().count();
        assert_eq!(left, 0, "something was left");
    }
}

#[test]
fn rel_1_archive_installs_with_or_without_a_top_directory() {
    let place = StagingFixture::new();
    let flat = place.take(&place.archive(&WHOLE)).unwrap();
    let name = flat.name("0.1.0").unwrap();
    let wrapped: Vec<String> = WHOLE
        .iter()
        .map(|put| match put {
            ArchiveItem::File(name, _) | ArchiveItem::Link(name, _) => {
                format!("./goondan-0.1.0/{name}")
            }
        })
        .collect();
    let contents = ["g", "o", "a", "c"];
    let puts = wrapped.iter().zip(contents);
    let puts: Vec<ArchiveItem<'_>> = puts
        .map(|(name, text)| ArchiveItem::File(name, text))
        .collect();
    let again = place.take(&place.archive(&puts)).unwrap();
    assert_eq!(again.name("0.1.0").unwrap(), name);
    again.settle(&name, &place.installation).unwrap();
    // Installing the same version again changes nothing.
    flat.settle(&name, &place.installation).unwrap();
    let gdn = place.installation.program(&name, "gdn");
    assert_eq!(fs::read_to_string(&gdn).unwrap(), "g");
    // A damaged version is replaced.
    fs::remove_file(&gdn).unwrap();
    let third = place.take(&place.archive(&WHOLE)).unwrap();
    third.settle(&name, &place.installation).unwrap();
    assert_eq!(fs::read_to_string(&gdn).unwrap(), "g");
    assert_eq!(
        fs::read_dir(place.installation.versions()).unwrap().count(),
        1
    );
}

#[test]
fn rel_1_a_hostile_archive_leaves_nothing() {
    let place = StagingFixture::new();
    for path in ["/etc/evil", "../evil", "a/../../evil", "a\nb"] {
        place.refuses(
            WHOLE.iter().chain([&ArchiveItem::File(path, "x")]),
            "leads out of the archive",
        );
    }
    for kind in [
        EntryType::Symlink,
        EntryType::Link,
        EntryType::Char,
        EntryType::Fifo,
    ] {
        place.refuses(
            WHOLE.iter().chain([&ArchiveItem::Link("x", kind)]),
            "neither a file nor a directory",
        );
    }
    place.refuses(WHOLE.iter().chain(&WHOLE), "is duplicated");
    place.refuses(
        WHOLE.iter().chain([&ArchiveItem::File("gdn/x", "x")]),
        "is duplicated",
    );
    place.refuses(&WHOLE[1..], "it does not contain gdn");
    let long = "x".repeat(99);
    let many: Vec<String> = (0..ARCHIVE_ENTRIES_MAX)
        .map(|number| format!("{number}"))
        .collect();
    let many: Vec<ArchiveItem<'_>> = many
        .iter()
        .map(|name| ArchiveItem::File(name, &long))
        .collect();
    place.refuses(WHOLE.iter().chain(&many), "more than");
    let archive = place.archive(&WHOLE);
    let whole = fs::read(&archive).unwrap();
    let cut = OpenOptions::new().write(true).open(&archive).unwrap();
    cut.set_len(whole.len() as u64 / 2).unwrap();
    let error = place.take(&archive).unwrap_err().to_string();
    assert!(
        error.contains("not a complete") || error.contains("cannot be read"),
        "{error}"
    );
}

#[test]
fn rel_1_archive_must_match_its_checksum_list() {
    let place = StagingFixture::new();
    let sum = |text: &str| digits(&ring::digest::digest(&SHA256, text.as_bytes()));
    let lines = [
        ("gdn", "g"),
        ("goondan-orchestrator", "o"),
        ("goondan-agent-process", "a"),
        ("goondan-connector-process", "c"),
    ];
    let said: String = lines
        .iter()
        .map(|(name, text)| format!("{}  {name}\n", sum(text)))
        .collect();
    let with = |said: &str| {
        let sums = ArchiveItem::File(SUMS, said);
        place.take(&place.archive(WHOLE.iter().chain([&sums])))
    };
    let named = with(&said).unwrap().name("0.1.0").unwrap();
    let own = place.take(&place.archive(&WHOLE)).unwrap();
    assert_eq!(own.name("0.1.0").unwrap(), named);
    let problem = |said: &str| with(said).unwrap_err().to_string();
    assert!(problem(&said.replace(&sum("g"), &sum("x"))).contains("gdn does not match"));
    let first = said.lines().next().unwrap();
    assert!(problem(first).contains("does not list"));
    assert!(problem("nonsense").contains("is empty"));
    let archive = place.archive(&WHOLE);
    let digest = digest_of(&mut File::open(&archive).unwrap()).unwrap();
    let take = |wanted: &str| StagedVersion::take(&archive, Some(wanted), &place.installation);
    assert!(take(&digest.to_uppercase()).is_ok());
    let error = take(&sum("x")).unwrap_err().to_string();
    assert!(error.contains("its SHA-256 is"), "{error}");
}
