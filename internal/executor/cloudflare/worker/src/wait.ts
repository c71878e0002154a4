// Promises with a timeout.

// within waits for a promise, and reports whether it resolved in time. It rejects if the promise does.
export async function within(promise: Promise<unknown>, ms: number): Promise<boolean> {
  let timer: number | null = null;
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(() => resolve(false), ms);
  });
  try {
    return await Promise.race([promise.then(() => true), late]);
  } finally {
    clearTimeout(timer); // a pending timer keeps the Durable Object in memory
  }
}

// inTime returns the value of a promise, or fails after a timeout. who names what it waits for.
export async function inTime<T>(promise: Promise<T>, ms: number, who: string): Promise<T> {
  if (!(await within(promise, ms))) throw new Error(`${who} did not answer within ${ms / 1000} s`);
  return promise;
}

// endPoll is how often whileRuns checks whether the container has ended, in milliseconds.
const endPoll = 50;

// whileRuns is inTime that also fails once the container has ended, so that a kill waits for nothing else.
export async function whileRuns<T>(container: Container, promise: Promise<T>, ms: number, who: string): Promise<T> {
  let waiting = true;
  const gone = async (): Promise<never> => {
    while (waiting && container.running) await scheduler.wait(endPoll);
    throw new Error("the container has ended");
  };
  try {
    return await inTime(Promise.race([promise, gone()]), ms, who);
  } finally {
    waiting = false;
  }
}
