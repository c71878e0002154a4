// Waiting no longer than a limit.

// within waits for a promise, and reports whether it was settled in time.
export async function within(promise: Promise<unknown>, ms: number): Promise<boolean> {
  let timer: number | null = null;
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(() => resolve(false), ms);
  });
  try {
    return await Promise.race([promise.then(() => true), late]);
  } finally {
    clearTimeout(timer); // it would keep the Durable Object in memory
  }
}

// inTime returns what a promise resolves to, and fails once it is late: who is what was waited for.
export async function inTime<T>(promise: Promise<T>, ms: number, who: string): Promise<T> {
  if (!(await within(promise, ms))) throw new Error(`${who} has not answered for ${ms / 1000} s`);
  return promise;
}
