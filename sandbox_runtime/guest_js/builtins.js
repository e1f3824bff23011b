// Makes the built-ins of the engine, each of which it would make at its first use: without memory, that one would be missing for good.
(() => {
  const made = new Set(), left = [globalThis, [].values(), "".matchAll(/x/g), new Map().keys(), new Set().keys(), async () => {}, function* () {}, async function* () {}];
  while (left.length) {
    const each = left.pop();
    if ((typeof each !== "object" && typeof each !== "function") || each === null || made.has(each)) continue;
    made.add(each);
    left.push(Object.getPrototypeOf(each));
    for (const key of Reflect.ownKeys(each)) {
      const { value, get, set } = Object.getOwnPropertyDescriptor(each, key);
      left.push(value, get, set);
    }
  }
})();
