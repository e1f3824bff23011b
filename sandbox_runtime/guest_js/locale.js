// Numbers and texts in en-US, as other engines have them: without Intl this one would print 1234.5, and sort "Z" before "a".

// The analysis refuses other options.
const CURRENCIES = { USD: "$", EUR: "€", GBP: "£", JPY: "¥" };
function localeNumber(_, options = {}) {
  if (!isFinite(this)) return `${this}`;
  const { style = "decimal", currency, minimumFractionDigits: given, useGrouping = true } = options;
  const usual = style === "currency" && currency !== "JPY" ? 2 : 0;
  const most = options.maximumFractionDigits ?? Math.max(given ?? usual, style === "decimal" ? 3 : usual);
  const number = style === "percent" ? this * 100 : +this, [whole, part = ""] = Math.abs(number).toFixed(most).split(".");
  const digits = part.replace(/0+$/, "").padEnd(Math.min(given ?? usual, most), "0");
  const sign = `${number < 0 ? "-" : ""}${style === "currency" ? CURRENCIES[currency] ?? `${currency}\xa0` : ""}`;
  return `${sign}${useGrouping ? whole.replace(/\B(?=(?:\d{3})+$)/g, ",") : whole}${digits && `.${digits}`}${style === "percent" ? "%" : ""}`;
}
defineProperty(Number.prototype, "toLocaleString", { value: localeNumber, writable: true, configurable: true });

const swapCase = (letter) => (letter === letter.toLowerCase() ? letter.toUpperCase() : letter.toLowerCase());
const letters = (text) => (/[^\0-\x7f]/.test(text) ? text.normalize("NFD").replace(/\p{M}+/gu, "") : text).toLowerCase();
// Letters, then their marks, then their case: each decides between texts that are the same by those before.
const ORDERS = [letters, (text) => text.normalize("NFD").toLowerCase(), (text) => text.replace(/\p{L}/gu, swapCase)];
function localeCompare(that) {
  const one = `${this}`, other = `${that}`;
  if (one === other) return 0;
  for (const order of ORDERS) {
    const a = order(one), b = order(other);
    if (a !== b) return a < b ? -1 : 1;
  }
  return 0;
}
defineProperty(String.prototype, "localeCompare", { value: localeCompare, writable: true, configurable: true });
