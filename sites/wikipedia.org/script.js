// The search box always speaks the language it searches.
(function(){var d=document,f=d.getElementById("search"),q=f.elements.q,l=f.elements.lang,
s=JSON.parse(d.getElementById("strings").textContent),m=(navigator.language||"en").slice(0,2);
function show(){var t=s[l.value]||s.en;q.placeholder=t[0];q.lang=l.value;
d.getElementById("shown").textContent=l.value.toUpperCase();f.action="/"+l.value+"/search"}
for(var i=0;i<l.length;i++)if(l[i].value===m)l.value=m;
d.onkeydown=function(e){if(e.key==="/"&&d.activeElement!==q){e.preventDefault();q.focus()}};
l.onchange=show;show();q.focus({preventScroll:!0})})();
