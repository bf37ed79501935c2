"""Place 3, the guest: address sources, pools, domain XML and the life of the domain."""
