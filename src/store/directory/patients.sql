-- A page of patients by name: all of them, those born on a day, or those with names like what was typed. Each way has its
-- own arm and its own index, since plans here know no parameters; of an arm whose first condition is false nothing runs.
-- $1 tenant $2 typed|null $3 birth date|null $4 after name $5 after id $6 rows
with found as (
  (select id, name, birth_date, email, phone, language, preferred_channel, version, lower(name) as key
   from patients
   where $2::text is null and $3::date is null
     and tenant_id = $1 and lower(name) ~>=~ lower($4) and (lower(name) ~>~ lower($4) or id > $5)
   order by lower(name) using ~<~, id
   limit $6)
  union all
  (select id, name, birth_date, email, phone, language, preferred_channel, version, lower(name)
   from patients
   where $3 is not null
     and tenant_id = $1 and birth_date = $3 and ($2 is null or name_words(name) @@ name_query($2))
     and lower(name) ~>=~ lower($4) and (lower(name) ~>~ lower($4) or id > $5)
   order by lower(name) using ~<~, id
   limit $6)
  union all
  (select id, name, birth_date, email, phone, language, preferred_channel, version, lower(name)
   from patients
   where $2 is not null and $3 is null
     and tenant_id = $1 and name_words(name) @@ name_query($2)
     and lower(name) ~>=~ lower($4) and (lower(name) ~>~ lower($4) or id > $5)
   order by lower(name) using ~<~, id
   limit $6)
)
select id as "id!", name as "name!", birth_date, email, phone, language, preferred_channel as "preferred_channel!",
  version as "version!"
from found
order by key using ~<~, id
