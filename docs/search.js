// What is typed goes to the search's worker as a message of type 2. There a word that begins with "-" is one to leave out,
// and each other may be the beginning of a longer one. An option is all of its words here, and of names that begin alike
// the one that is typed counts most: `ddp.init` comes before `ddp.init_ranks`.
const send = Worker.prototype.postMessage
Worker.prototype.postMessage = function (message, ...rest) {
  if (message?.type === 2) {
    const words = message.data.split(/\s+/).flatMap(word => {
      const parts = word.split(/[^\w]+/).filter(Boolean)
      if (word.startsWith("-")) return parts.map(part => `+${part}*`)
      return /\w\.\w/.test(word) ? [word, `${parts.at(-1)}^10`] : [word]
    })
    message = {...message, data: words.join(" ")}
  }
  return send.call(this, message, ...rest)
}
