browse({
"stills":"https://stills.lanternreel.example/v/",
"faces":"https://faces.lanternreel.example/c/",
"counter":"https://log.viewcount.example/view.js",
"channels":{"hut":{"name":"The Upper Hut","face":1},"plane":{"name":"Plane and Chisel","face":2},"night":{"name":"Night Trains","face":3},"proof":{"name":"Proofs at Breakfast","face":4},"tide":{"name":"Tidewatch","face":5},"stage":{"name":"Ten Small Stages","face":6},"soup":{"name":"Soup Club","face":7},"lamp":{"name":"Workshop 31","face":8}},
"films":[
{"id":1,"channel":"hut","title":"Eleven hours on the ridge, without words","length":"11:02:40","views":"412 k","age":"3 weeks"},
{"id":2,"channel":"lamp","title":"The quietest lamp I could build","length":"18:09","views":"1.2 m","age":"5 months"},
{"id":3,"channel":"proof","title":"Why a circle has no corners, properly","length":"24:51","views":"96 k","age":"2 days"},
{"id":4,"channel":"tide","title":"High water at every pier of the coast","length":"9:33","views":"38 k","age":"6 hours"},
{"id":5,"channel":"night","title":"Cab view: northern line at four in the morning","length":"3:12:00","views":"740 k","age":"1 year"},
{"id":6,"channel":"plane","title":"One board, no glue, a chair","length":"41:17","views":"2.8 m","age":"2 years"},
{"id":7,"channel":"stage","title":"A choir answers the foghorn","length":"6:20","views":"203 k","age":"4 days"},
{"id":8,"channel":"soup","title":"Barley, lemon, patience","length":"12:45","views":"57 k","age":"1 week"},
{"id":9,"channel":"hut","title":"Snow coming over the seven steps","length":"1:30:00","views":"330 k","age":"2 months"},
{"id":10,"channel":"lamp","title":"Mending a loudspeaker with tea","length":"22:08","views":"871 k","age":"8 months"},
{"id":11,"channel":"proof","title":"The string geometer of Upper Tarn","length":"33:40","views":"145 k","age":"9 days"},
{"id":12,"channel":"tide","title":"A storm from the lighthouse kitchen","length":"58:02","views":"1.9 m","age":"3 years"}
]});
