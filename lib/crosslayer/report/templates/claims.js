function filtered(table, form) {
  const rows = [...table.tBodies[0].rows];
  const show = () => {
    const { verdict, paper, words, contradiction, changed } = form.elements;
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !((!verdict.value || row.dataset.counted === verdict.value) && (!paper.value || row.dataset.paper === paper.value)
        && (!contradiction.checked || "contradiction" in row.dataset) && (!changed?.checked || "changed" in row.dataset) && wanted.every(word => text.includes(word)));
      shown += !row.hidden;
    }
    form.querySelector("output").value = `${shown} of ${rows.length} claims`;
  };
  form.hidden = false;
  form.addEventListener("input", show);
  form.addEventListener("submit", event => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(show));  // the event comes before the values go
  // An address with #verdict=...&paper=... filters; one of a claim that the filter hides shows all.
  const follow = () => {
    const wanted = new URLSearchParams(location.hash.slice(1));
    const hidden = !wanted.has("verdict") && location.hash && document.getElementById(location.hash.slice(1))?.hidden;
    if (!wanted.has("verdict") && !hidden) return;
    form.reset();
    if (wanted.has("verdict")) {
      form.elements.verdict.value = wanted.get("verdict");
      form.elements.paper.value = wanted.get("paper");
    }
    show();
    if (hidden) document.getElementById(location.hash.slice(1)).scrollIntoView();
  };
  addEventListener("hashchange", follow);
  follow();
  show();
}
function sortable(table) {
  const body = table.tBodies[0], rows = [...body.rows], rank = body.dataset.verdicts.split(" ");
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    if (!("sort" in head.dataset)) return;
    const button = document.createElement("span");  // a real button is not printed where a table's head is repeated
    button.role = "button";
    button.tabIndex = 0;
    button.append(...head.childNodes);
    head.append(button);
    const key = head.textContent === "Verdict" ? row => rank.indexOf(row.className)
      : head.textContent === "Claim" ? row => rows.indexOf(row) : row => row.cells[column].textContent;
    button.addEventListener("keydown", event => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      button.click();
    });
    button.addEventListener("click", () => {
      const down = head.ariaSort === "ascending" ? -1 : 1;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.ariaSort = down > 0 ? "ascending" : "descending";
      const keys = new Map(rows.map(row => [row, key(row)]));
      const compare = (a, b) => typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
      body.append(...rows.toSorted((a, b) => down * compare(keys.get(a), keys.get(b))));
    });
  });
}
const claims = document.querySelector("table.claims");
if (claims) {
  sortable(claims);
  filtered(claims, document.querySelector("form.filter"));
}
