//! `kind: Model`: who answers.

use goondan_protocol::definition::{ModelDefinition, ModelProvider};
use goondan_protocol::script::Script;

use super::{Context, id, read_named_file, script, value};
use crate::codes;
use crate::document::Document;
use crate::fields::{Fields, Label, Located};
use crate::limits::MAX_YAML_BYTES;
use crate::report::{Problem, Report};
use crate::shape::{Case, Choice, Content, Default, Field, Rule, Shape};
use crate::tree;

/// The embedded model's provider, and the name of its only model.
const SCRIPTED: &str = "scripted";

/// Providers that are goondan's by design and not there yet.
const HOSTED: &[&str] = &["anthropic", "openai", "google"];

const PROVIDER: Field = Field::required(
    "provider",
    Content::Word(&[SCRIPTED, "anthropic", "openai", "google"]),
    "Who answers. `scripted` is embedded, needs no network and plays a script.",
);

const CAPABILITIES: Field = Field::optional(
    "capabilities",
    Content::Mapping(&CAPABILITIES_SHAPE),
    "What the model can do, where that cannot be told from its name.",
);

static CAPABILITIES_SHAPE: Shape = Shape::of(
    "Capabilities",
    "What a model can do.",
    &[
        Field::optional("toolCalling", Content::Boolean, "It calls tools."),
        Field::optional("streaming", Content::Boolean, "It answers piece by piece."),
        Field::optional("images", Content::Boolean, "It takes images."),
    ],
);

/// What a Model's `spec` holds.
pub(crate) static SPEC: Choice = Choice {
    field: "provider",
    cases: &[
        (Case::Is(&[SCRIPTED]), &SCRIPTED_SPEC),
        (Case::Is(HOSTED), &HOSTED_SPEC),
    ],
    otherwise: &UNKNOWN_SPEC,
};

static SCRIPTED_SPEC: Shape = Shape::of(
    "ScriptedModelSpec",
    "The embedded model, which plays a script and always answers the same.",
    &[
        PROVIDER,
        Field::optional("model", Content::Text, "A name for people to read.")
            .or(Default::Word(SCRIPTED)),
        Field::required(
            "options",
            Content::Mapping(&SCRIPTED_OPTIONS),
            "The script.",
        ),
        CAPABILITIES,
    ],
);

static SCRIPTED_OPTIONS: Shape = Shape::of(
    "ScriptedModelOptions",
    "The script of the embedded model.",
    &[
        Field::optional(
            "script",
            Content::Path,
            "Path of a script file: one YAML document with the field `rules`.",
        ),
        Field::optional(
            "rules",
            Content::List(&Content::Mapping(&script::RULE)),
            "The rules themselves.",
        ),
    ],
)
.with(&[
    Rule::NotBoth("script", "rules"),
    Rule::AnyOf(
        &["script", "rules"],
        "name a script file with `script: path/of/script.yaml`",
    ),
]);

static HOSTED_SPEC: Shape = Shape::of(
    "HostedModelSpec",
    "A model of a provider. Not supported by this version.",
    &[
        PROVIDER,
        Field::required(
            "model",
            Content::Text,
            "The provider's own name of the model.",
        ),
        Field::optional("apiKey", Content::Secret, "The key the provider gave you."),
        Field::optional(
            "endpoint",
            Content::Text,
            "Where the provider is reached, if not at its usual address.",
        ),
        Field::optional(
            "options",
            Content::Entries(&Content::Anything),
            "The provider's own options.",
        ),
        CAPABILITIES,
    ],
);

/// Of a provider nobody knows, nothing else can be judged.
static UNKNOWN_SPEC: Shape = Shape::of("ModelSpec", "Who answers.", &[PROVIDER]).open();

/// Reads a Model document with its script.
pub(crate) fn read(document: &Document<'_>, cx: &mut Context<'_>) -> Option<ModelDefinition> {
    let name = id(&document.name, &mut cx.report);
    let mut spec = document.spec(&mut cx.report)?;
    let provider = spec.word("provider", &mut cx.report)?;
    if provider.value != SCRIPTED {
        refuse_hosted(spec, &provider, cx);
        return None;
    }
    let model = spec.text("model", &mut cx.report);
    let options = spec.nested("options", &mut cx.report);
    read_capabilities(&mut spec, cx);
    spec.close();
    let script = read_script(options?, cx);
    Some(ModelDefinition {
        name: name?,
        model: model.map_or_else(|| SCRIPTED.to_owned(), |model| model.value.to_owned()),
        provider: ModelProvider::Scripted { script: script? },
    })
}

/// Checks a model of a provider as far as it goes, and says that it cannot run yet.
fn refuse_hosted(mut spec: Fields<'_>, provider: &Located<&str>, cx: &mut Context<'_>) {
    cx.report.add(
        Problem::new(
            codes::UNSUPPORTED,
            provider.place,
            format!(
                "provider `{}` is not supported by this version yet; the only provider is \
                 `{SCRIPTED}`",
                provider.value
            ),
        )
        .help(format!("write `provider: {SCRIPTED}` and a script")),
    );
    let _model = spec.text("model", &mut cx.report);
    let _key = value::read_secret(&mut spec, "apiKey", cx);
    let _endpoint = spec.text("endpoint", &mut cx.report);
    let _options = spec.entries("options", &mut cx.report);
    read_capabilities(&mut spec, cx);
    spec.close();
}

fn read_capabilities(spec: &mut Fields<'_>, cx: &mut Context<'_>) {
    if let Some(mut capabilities) = spec.nested("capabilities", &mut cx.report) {
        for name in ["toolCalling", "streaming", "images"] {
            let _says = capabilities.boolean(name, &mut cx.report);
        }
        capabilities.close();
    }
}

fn read_script(mut options: Fields<'_>, cx: &mut Context<'_>) -> Option<Script> {
    let path = options.text("script", &mut cx.report);
    let rules = if options.has("rules") {
        script::read_rules(&mut options, &mut cx.report)
    } else {
        let _absent = options.get("rules");
        None
    };
    options.close();
    let Some(path) = path else { return rules };
    let (path, text) = read_named_file(&path, MAX_YAML_BYTES, cx)?;
    read_script_file(&path, &text, &mut cx.report)
}

fn read_script_file(path: &std::path::Path, text: &str, report: &mut Report) -> Option<Script> {
    let text = crate::load::with_yaml_line_ends(text);
    let file = report.add_file(path, text.as_ref());
    let documents = tree::parse(file, &text, report)?;
    let label = Label::of("the script");
    let [document] = documents.as_slice() else {
        report.add(
            Problem::new(
                codes::INVALID_VALUE,
                crate::report::Place::start_of(file),
                format!(
                    "a script is one YAML document, but `{}` holds {}",
                    path.display(),
                    documents.len()
                ),
            )
            .help("begin the file with `rules:`"),
        );
        return None;
    };
    let content = Content::Mapping(&script::SCRIPT);
    let mut fields = Fields::open(document, document.place, label, content, report)?;
    let script = script::read_rules(&mut fields, report);
    fields.close();
    script
}
