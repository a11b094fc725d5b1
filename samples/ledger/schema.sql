-- Amounts are in the smallest unit of the currency: whole numbers, nothing is ever rounded.

CREATE TABLE accounts (
  name    text PRIMARY KEY,
  balance bigint NOT NULL CONSTRAINT covered CHECK (balance >= 0)
);

-- What has been done. By its id a transfer that comes again is known.
CREATE TABLE transfers (
  id        text PRIMARY KEY,
  debit     text NOT NULL REFERENCES accounts,
  credit    text NOT NULL REFERENCES accounts,
  amount    bigint NOT NULL CONSTRAINT positive CHECK (amount > 0),
  booked_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT between_two CHECK (debit <> credit)
);
