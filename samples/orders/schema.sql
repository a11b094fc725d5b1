-- Amounts are in the smallest unit of the currency: whole numbers, nothing is ever rounded.

CREATE TABLE customers (
  name   text PRIMARY KEY,
  credit bigint NOT NULL CONSTRAINT covered CHECK (credit >= 0),
  owes   bigint NOT NULL DEFAULT 0,
  points bigint NOT NULL DEFAULT 0
);

CREATE TABLE stock (
  article text PRIMARY KEY,
  in_hand bigint NOT NULL -- below 0 where more is ordered than there is
);

CREATE TABLE orders (
  id       text PRIMARY KEY,
  customer text NOT NULL REFERENCES customers,
  article  text NOT NULL REFERENCES stock,
  quantity bigint NOT NULL CHECK (quantity > 0),
  total    bigint NOT NULL CHECK (total >= 0)
);

-- What each kind of worker has done, by the order.
CREATE TABLE stock_taken (order_id text PRIMARY KEY, quantity bigint NOT NULL);
CREATE TABLE invoices (order_id text PRIMARY KEY, total bigint NOT NULL);
CREATE TABLE points_given (order_id text PRIMARY KEY, points bigint NOT NULL);
