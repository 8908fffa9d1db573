-- Finding a patient by the beginning of any word of the name: "becker", "ada b", "beck ada". Names are one text, so an index
-- on their beginning finds nobody by family name.

create extension if not exists btree_gin;

-- What the text parser would take for parts of a word (hyphens), of a number, a host or a path separates words here, in
-- names and in what is typed alike.
create function name_words(name text) returns tsvector
language sql immutable parallel safe strict
return to_tsvector('simple', translate(name, $$!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~‐‑–—‘’·$$, repeat(' ', 39)));
comment on function name_words is 'The words of a name, in lower case.';

-- Built from the words themselves, which hold neither quote nor backslash any more, so nothing typed is read as an operator.
create function name_query(typed text) returns tsquery
language sql immutable parallel safe strict
return (select string_agg('''' || word.lexeme || ''':*', ' & ')::tsquery from unnest(name_words(typed)) word);
comment on function name_query is 'Finds names in which every word typed begins a word; null, which finds none, when no word was typed.';

create index patients_by_word on patients using gin (tenant_id, name_words(name));
