// Login: exchanges the ticket in the address for a token once, and stores the token for this tab. Tabs of the same
// browser share the token.

/** What a login gives. */
export interface Session {
  token: string;
  write: boolean;
  goondan: string;
  stateRoot: string;
  /** Where the command was called that started Studio. */
  projectRoot?: string | null;
  workspaceId?: string | null;
}

/** Why there is no session, in words, with what to do. */
export interface Locked {
  message: string;
  suggestion: string;
}

const KEPT = 'goondan.session';
const CHANNEL = 'goondan.session';
/** How long other tabs have to hand their token on. */
const ASK_MS = 400;

const AGAIN = 'run `gdn studio` again, and open the address that it prints';

type Word = { ask: true } | { session: Session };

/** Takes the ticket out of the address, so that no history and no bookmark keeps it. */
export function takeTicket(): string | null {
  const match = /^#t=([0-9a-f]{32})$/.exec(location.hash);
  if (match === null) return null;
  history.replaceState(null, '', `${location.pathname}#/`);
  return match[1]!;
}

/** The session of this tab. */
export class SessionKeeper {
  current: Session | null = null;
  locked: Locked | null = null;
  /** Called when the session begins or ends. */
  onChange: () => void = () => undefined;
  readonly #channel = new BroadcastChannel(CHANNEL);
  /** Tokens that the server does not take any more: other tabs may still have them. */
  readonly #refused = new Set<string>();
  #heard: (session: Session) => void = () => undefined;

  constructor() {
    this.#channel.onmessage = (event: MessageEvent<Word>) => {
      const word = event.data;
      if ('ask' in word) {
        if (this.current !== null) this.#say({ session: this.current });
      } else if (this.current === null && !this.#refused.has(word.session.token)) {
        this.#begin(word.session);
        this.#heard(word.session);
      }
    };
  }

  /** Begins a session by the ticket, by what this tab kept, or by another tab. */
  async start(): Promise<void> {
    const ticket = takeTicket();
    if (ticket !== null) return this.#login(ticket);
    const kept = sessionStorage.getItem(KEPT);
    if (kept !== null) return this.#begin(JSON.parse(kept) as Session);
    const heard = await this.#askTabs();
    if (heard === null) {
      this.lock({ message: 'This tab is not logged in.', suggestion: AGAIN });
    }
  }

  /** Ends the session: the server does not take the token any more. Another tab may have a newer one. */
  lock(why: Locked = { message: 'Studio was restarted, or this login has expired.', suggestion: AGAIN }): void {
    sessionStorage.removeItem(KEPT);
    if (this.current !== null) {
      this.#refused.add(this.current.token);
      this.#say({ ask: true });
    }
    this.current = null;
    this.locked = why;
    this.onChange();
  }

  async #login(ticket: string): Promise<void> {
    try {
      const response = await fetch('api/login', {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({ ticket }),
      });
      const body = (await response.json()) as Session & { error?: Partial<Locked> };
      if (response.ok) {
        this.#begin(body);
        this.#say({ session: body });
        return;
      }
      const { message, suggestion } = body.error ?? {};
      this.lock({ message: message ?? 'The login link is not valid.', suggestion: suggestion ?? AGAIN });
    } catch {
      this.lock({ message: 'Cannot reach Studio.', suggestion: AGAIN });
    }
  }

  #begin(session: Session): void {
    this.current = session;
    this.locked = null;
    sessionStorage.setItem(KEPT, JSON.stringify(session));
    this.onChange();
  }

  #askTabs(): Promise<Session | null> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(null), ASK_MS);
      this.#heard = (session) => {
        clearTimeout(timer);
        resolve(session);
      };
      this.#say({ ask: true });
    });
  }

  #say(word: Word): void {
    this.#channel.postMessage(word);
  }
}

/** The one of this tab. */
export const session = new SessionKeeper();
