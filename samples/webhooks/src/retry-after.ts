/** The header Retry-After: how many milliseconds to wait, undefined where it says nothing usable. */
export function retryAfterMs(value: string | null, now: number): number | undefined {
  if (value === null) return undefined;
  if (/^\d{1,9}$/.test(value)) return Number(value) * 1000;
  const date = Date.parse(value); // an HTTP date
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}
