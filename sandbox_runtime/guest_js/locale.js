// Numbers, dates and texts in en-US, as in other engines: without Intl it would print 1234.5 and 03/05/2026, and sort Z before a.

// The analysis refuses other options.
const CURRENCIES = {
  USD: "$", EUR: "€", GBP: "£", JPY: "¥", AUD: "A$", BRL: "R$", CAD: "CA$", CNY: "CN¥", HKD: "HK$", ILS: "₪", INR: "₹",
  KRW: "₩", MXN: "MX$", NZD: "NZ$", PHP: "₱", TWD: "NT$", VND: "₫",
};
const WHOLE = ["JPY", "KRW", "VND"];
// Rounded as it prints: `toFixed` takes 1.005 for less than that.
function rounded(number, shift, digits) {
  const text = `${number}`;
  if (text.includes("e")) return (number * 10 ** shift).toFixed(digits);
  const shifted = `${+`${text}e${shift}`}`, { length } = shifted.split(".")[1] ?? "";
  return length <= digits ? shifted : (Math.round(+`${text}e${shift + digits}`) / 10 ** digits).toFixed(digits);
}
function localeNumber(_, options = {}) {
  if (!isFinite(this)) return `${this}`;
  const { style = "decimal", currency, minimumFractionDigits: given, useGrouping = true } = options;
  const usual = style === "currency" && !WHOLE.includes(currency) ? 2 : 0;
  const most = options.maximumFractionDigits ?? Math.max(given ?? usual, style === "decimal" ? 3 : usual);
  const [whole, part = ""] = rounded(Math.abs(this), style === "percent" ? 2 : 0, most).split(".");
  const digits = part.replace(/0+$/, "").padEnd(Math.min(given ?? usual, most), "0");
  const sign = `${this < 0 ? "-" : ""}${style === "currency" ? CURRENCIES[currency] ?? `${currency}\xa0` : ""}`;
  return `${sign}${useGrouping ? whole.replace(/\B(?=(?:\d{3})+$)/g, ",") : whole}${digits && `.${digits}`}${style === "percent" ? "%" : ""}`;
}
defineProperty(Number.prototype, "toLocaleString", { value: localeNumber, writable: true, configurable: true });
for (const name of ["toLocaleString", "toLocaleDateString", "toLocaleTimeString"]) {
  const padded = uncurried(Date.prototype[name]);
  defineProperty(Date.prototype, name, { value() { return padded(this).replace(/(?<=^|\/|, )0+(?=\d)/g, ""); }, writable: true, configurable: true });
}

const swapCase = (letter) => (letter === letter.toLowerCase() ? letter.toUpperCase() : letter.toLowerCase());
const PLAIN = { ß: "ss", æ: "ae", œ: "oe", ø: "o", ł: "l", đ: "d" };
const plain = (text) => text.normalize("NFD").toLowerCase().replace(/\p{M}+|[ßæœøłđ]/gu, (found) => PLAIN[found] ?? "");
const MAX_SORT_KEYS = 65_536, sortKeys = new Map(); // a sort compares each text often
const letters = (text) => {
  if (text.length > 100) return plain(text);
  if (sortKeys.size > MAX_SORT_KEYS) sortKeys.clear();
  if (!sortKeys.has(text)) sortKeys.set(text, plain(text));
  return sortKeys.get(text);
};
// Letters, then their marks, then their case: each decides between texts that are the same by those before.
const ORDERS = [letters, (text) => text.normalize("NFD").toLowerCase(), (text) => text.normalize("NFD").replace(/\p{L}/gu, swapCase)];
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
