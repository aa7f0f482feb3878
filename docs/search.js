// The search takes a word that begins with "-" as one to leave out: `--upload-data` would find nothing.
document.addEventListener("input", ({target}) => {
  if (target.matches(".md-search__input")) target.value = target.value.replace(/(^|\s)-+(?=\S)/g, "$1")
}, true)
