// Times, durations, sizes and money in words.

const DAY_MS = 86_400_000;

const clock = new Intl.DateTimeFormat('en-US', { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
const day = new Intl.DateTimeFormat('en-US', { month: 'short', day: 'numeric', year: 'numeric' });

/** A time of the daemon for a person: the time of day, with its day unless that is today. */
export function timeOf(text: string, nowMs = Date.now()): string {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return text;
  const isToday = Math.abs(nowMs - at.getTime()) < DAY_MS && at.getDate() === new Date(nowMs).getDate();
  return isToday ? clock.format(at) : `${day.format(at)}, ${clock.format(at)}`;
}

/** A duration in the two largest units that say something. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.floor((ms % 60_000) / 1000)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

/** How long ago something was. */
export function ago(text: string, nowMs = Date.now()): string {
  const ms = nowMs - Date.parse(text);
  if (Number.isNaN(ms)) return text;
  return ms < 1000 ? 'just now' : `${duration(ms).replace(/\.\d s$/, ' s')} ago`;
}

/** Bytes in the unit that fits. */
export function bytes(count: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

const whole = new Intl.NumberFormat('en-US');

/** A whole number with its thousands apart. */
export function count(value: number): string {
  return whole.format(value);
}

/** Millionths of a dollar as dollars. */
export function dollars(microUsd: number): string {
  const value = microUsd / 1_000_000;
  return `$${value.toFixed(value !== 0 && value < 1 ? 4 : 2)}`;
}

/** `1 file`, `2 files`. */
export function counted(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}
