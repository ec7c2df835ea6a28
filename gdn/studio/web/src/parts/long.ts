// A text that somebody else wrote, and that may be long: its beginning, until somebody wants all of it.

import { html, LitElement, nothing, type TemplateResult } from 'lit';
import { count } from './figures.js';
import { cutAt } from './text.js';
import { blockView, textView } from './views.js';

/** Longer texts are cut. */
const SHOWN_CHARACTERS = 4096;
/** One that is hardly longer is not. */
const SPARED_CHARACTERS = 512;

/** The text. Its fields are set by whoever shows it. */
export class LongText extends LitElement {
  static override readonly properties = { text: {}, label: {}, isAll: { state: true } };
  declare text: string;
  /** The name of the box that it stands in; without one it stands in the message itself. */
  declare label: string;
  declare isAll: boolean;

  constructor() {
    super();
    this.text = '';
    this.label = '';
    this.isAll = false;
  }

  protected override createRenderRoot(): HTMLElement {
    return this;
  }

  protected override render(): TemplateResult {
    const { text, label } = this;
    const isLong = text.length > SHOWN_CHARACTERS + SPARED_CHARACTERS;
    const shown = isLong && !this.isAll ? `${text.slice(0, cutAt(text, SHOWN_CHARACTERS))}…` : text;
    return html`${label === '' ? textView(shown) : blockView(shown, label)}${isLong ? this.#button() : nothing}`;
  }

  /** It stays where it is, so that the focus does, too. */
  #button(): TemplateResult {
    const name = this.isAll ? 'Show less' : `Show all ${count(this.text.length)} characters`;
    return html`<p><button type="button" aria-expanded=${this.isAll ? 'true' : 'false'} @click=${() => {
      this.isAll = !this.isAll;
    }}>${name}</button></p>`;
  }
}

customElements.define('gdn-long', LongText);
