import { parse, visit } from 'graphql';

// "QUAKE-2 Strong quakes of the month": a name begins with the id of its access pattern.
const NAME = /^(?:([A-Z]+-\w+)\s+)?(.*)$/;

/** Return the example with its `title`, the `id` of its pattern, and the `terms` that a search finds it by. */
export function searchable(example) {
  const [, id, title] = NAME.exec(example.name);
  return { ...example, id, title, terms: termsOf(example.query) };
}

/** Return the kind of an operation, and the names of its fields and arguments, each once. */
function termsOf(query) {
  const terms = new Set();
  const add = ({ name }) => void terms.add(name.value);
  visit(parse(query, { noLocation: true }), {
    OperationDefinition: ({ operation }) => void terms.add(operation),
    Field: add,
    Argument: add,
    ObjectField: add,
  });
  return [...terms];
}

/**
 * Return the examples that match all words of a search, each with `because`: the fields and arguments that match words
 * which the title does not contain. Matches by title come first, then those by terms, then those by the group's name.
 */
export function search(examples, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = examples.map((example) => match(example, words)).filter(Boolean);
  return found.sort((one, other) => one.rank - other.rank);
}

function match(example, words) {
  const heading = `${example.title} ${example.id ?? ''}`.toLowerCase();
  const because = new Set();
  let rank = 0;
  for (const word of words) {
    if (heading.includes(word)) continue;
    const term = example.terms.find((term) => term.toLowerCase() === word) ?? example.terms.find((term) => term.toLowerCase().includes(word));
    if (term) because.add(term);
    else if (!example.group.toLowerCase().includes(word)) return undefined;
    rank = Math.max(rank, term ? 1 : 2);
  }
  return { ...example, rank, because: [...because] };
}
