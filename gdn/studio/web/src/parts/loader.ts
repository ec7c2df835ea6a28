// Loads the libraries for Markdown, colors of programs and changed words, after the page is shown. Until then, and for
// what they cannot read, texts are plain.

type Rich = typeof import('../rich.js');

let rich: Rich | null = null;
let isRequested = false;
const waiting = new Set<() => void>();

/** The libraries, if they are loaded. */
export function richNow(): Rich | null {
  return rich;
}

/** Loads the libraries once. */
export function loadRich(): void {
  if (isRequested) return;
  isRequested = true;
  void import('./rich.js' as string)
    .then((loaded: Rich) => {
      rich = loaded;
      document.documentElement.dataset['rich'] = 'loaded';
      for (const update of [...waiting]) update();
    })
    .catch(() => {
      // The server is gone or was replaced; the page says so itself.
      isRequested = false;
    });
}

/** Calls back when the libraries are loaded; what is returned ends that. */
export function onRich(update: () => void): () => void {
  waiting.add(update);
  return () => waiting.delete(update);
}

const LANGUAGES: Record<string, string> = {
  bash: 'bash', sh: 'bash', zsh: 'bash', c: 'c', h: 'c', cc: 'cpp', cpp: 'cpp', hpp: 'cpp', cs: 'csharp', css: 'css', scss: 'css',
  diff: 'diff', patch: 'diff', dockerfile: 'dockerfile', go: 'go', ini: 'ini', toml: 'ini', conf: 'ini', java: 'java', js: 'javascript',
  jsx: 'javascript', mjs: 'javascript', cjs: 'javascript', json: 'json', jsonl: 'json', kt: 'kotlin', kts: 'kotlin', makefile: 'makefile',
  mk: 'makefile', md: 'markdown', php: 'php', py: 'python', rb: 'ruby', rs: 'rust', scala: 'scala', sql: 'sql', swift: 'swift', ts: 'typescript',
  tsx: 'typescript', html: 'xml', svg: 'xml', xml: 'xml', vue: 'xml', yaml: 'yaml', yml: 'yaml',
};

/** The language of a file, by its name; of a code block, by what its author wrote. */
export function languageOf(name: string): string {
  const last = name.slice(name.lastIndexOf('/') + 1).toLowerCase();
  const end = last.slice(last.lastIndexOf('.') + 1);
  return LANGUAGES[end] ?? end;
}
