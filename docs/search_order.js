// Puts pages whose titles have the words of a search first; Sphinx calls `score` for each result.
var Scorer = (() => {
  const words = (text) => text.toLowerCase().match(/[a-z]+/g) ?? [];
  const asked = words(new URLSearchParams(location.search).get("q") ?? "");

  // A word of a title stands for a word that was asked for if both begin alike, as follower and
  // followers do.
  function alike(one, other) {
    const shared = Math.max(4, Math.min(one.length, other.length) - 1);
    return one === other || one.slice(0, shared) === other.slice(0, shared);
  }

  // A result is a page, or a part of one with an anchor, which comes after pages.
  function score([, title, anchor, , found]) {
    if (anchor) return found / 2;
    const heard = asked.filter((one) => words(title).some((word) => alike(word, one)));
    return found + (asked.length ? (20 * heard.length) / asked.length : 0);
  }

  const objects = { objNameMatch: 11, objPartialMatch: 3, objPrio: { 0: 15, 1: 5, 2: -5 } };
  const terms = { title: 15, partialTitle: 7, term: 5, partialTerm: 2 };
  return { ...objects, objPrioDefault: 0, ...terms, score };
})();
