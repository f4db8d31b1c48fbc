ticker([
  {"at":"19:04","text":"The first water has reached the lower basin. Children are sailing paper boats on it; the harbour master has issued them numbers.","picture":"live-1.png"},
  {"at":"18:51","text":"High water nine minutes late and 4 cm above the table. The Sound stays open for ships under 200 metres."},
  {"at":"18:37","text":"Council: the vote on the night ferry is postponed because the night ferry is late.","picture":"live-2.png"},
  {"at":"18:12","text":"Regatta: the two leading boats agree to wait for the third, which has the coffee."},
  {"at":"17:58","text":"Rain over the western hills, moving off. Fog after midnight in the estuary.","picture":"live-3.png"},
  {"at":"17:40","text":"The bell of Marrow Point was heard twice. There is no spring tide; the museum is looking into it."},
  {"at":"17:15","text":"Salt closes at 11.20, rope at 3.75, wool unchanged."}
]);
