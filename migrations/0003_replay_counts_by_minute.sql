-- For the janitor, which forgets old counts: the primary key begins with the tenant.
create index replay_counts_minute on replay_counts (minute);
