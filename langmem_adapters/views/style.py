"""The look of all views: one style sheet, for light and dark, that affects nothing outside of a view.

A notebook says which theme it has: JupyterLab and Notebook by ``data-jp-theme-light``, VS Code by
``data-vscode-theme-kind``, Colab by ``theme``, a site of mkdocs-material by ``data-md-color-scheme``. Where nothing
does, the system decides.
"""

from __future__ import annotations

_LIGHT_COLORS = (
    "color-scheme:light;--bg:#fff;--ink:#1f2430;--dim:#667085;--line:#e4e7ec;--tint:#f5f7fa;--accent:#2f6fdd;"
    "--good:#1a7f4b;--bad:#c2372e;--warm:#9a6700;--plum:#7a3fb0;--mark:#ffe9a8;--track:#e8ecf2"
)
_DARK_COLORS = (
    "color-scheme:dark;--bg:#16181d;--ink:#e4e7ec;--dim:#98a2b3;--line:#2e333d;--tint:#1e2129;--accent:#7aa7f7;"
    "--good:#5fc48d;--bad:#f2867e;--warm:#e0b252;--plum:#c49bf0;--mark:#5b4a12;--track:#2e333d"
)
_HOSTS = (  # of each, where it is light, and where it is dark
    ('[data-jp-theme-light="true"]', '[data-jp-theme-light="false"]'),
    ('[data-vscode-theme-kind="vscode-light"]', '[data-vscode-theme-kind="vscode-dark"]'),
    ('[data-vscode-theme-kind="vscode-high-contrast-light"]', '[data-vscode-theme-kind="vscode-high-contrast"]'),
    ('html[theme="light"]', 'html[theme="dark"]'),
    ('[data-md-color-scheme="default"]', '[data-md-color-scheme="slate"]'),
)

_RULES = """
V{background:var(--bg);color:var(--ink);border:1px solid var(--line);border-radius:8px;padding:14px 16px;margin:4px 0;
max-width:760px;box-sizing:border-box;font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
text-align:left;overflow-wrap:anywhere}
V *{box-sizing:border-box;color:inherit}
V [dir]{text-align:start}
V .lm-head{display:flex;flex-wrap:wrap;gap:0 10px;align-items:baseline;margin-bottom:10px}
V .lm-head strong{font-size:15px;font-weight:600}
V .lm-dim,V .lm-note{color:var(--dim);font-size:12px}
V .lm-note{margin:8px 0}
V .lm-rule{display:flex;align-items:center;gap:10px;color:var(--dim);font-size:12px;margin:10px 0}
V .lm-rule::before,V .lm-rule::after{content:"";flex:1;border-top:1px dashed var(--line)}
V .lm-text{white-space:pre-wrap;margin:0}
V .lm-summary{border-left:3px solid var(--plum);background:var(--tint);border-radius:0 6px 6px 0;padding:8px 12px;
margin:0 0 12px}
V .lm-turn{display:grid;grid-template-columns:80px minmax(0,1fr);gap:2px 14px;padding:7px 0}
V .lm-turn+.lm-turn{border-top:1px solid var(--line)}
V .lm-day{color:var(--dim);font-size:11px;margin-top:6px;letter-spacing:.03em}
V .lm-who{font-size:12px;font-weight:600;line-height:21px;color:var(--dim)}
V .lm-who .lm-dim{display:block;font-weight:400;font-size:11px;line-height:1.4}
V .lm-user .lm-who{color:var(--accent)}
V .lm-assistant .lm-who{color:var(--good)}
V .lm-tool .lm-who{color:var(--warm)}
V .lm-system .lm-who{color:var(--plum)}
V .lm-left{opacity:.6}
V .lm-call{border:1px solid var(--line);background:var(--tint);border-radius:6px;padding:6px 10px;margin:5px 0 2px;
font:12px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre-wrap}
V .lm-call b{color:var(--warm);font-weight:600}
V .lm-call .lm-result{border-top:1px solid var(--line);margin-top:5px;padding-top:5px}
V .lm-call .lm-dim{font-size:11px}
V .lm-hit{padding:9px 0}
V .lm-hit+.lm-hit{border-top:1px solid var(--line)}
V .lm-score{display:flex;flex-wrap:wrap;align-items:center;gap:2px 10px;margin-bottom:3px}
V .lm-score b{font-variant-numeric:tabular-nums;font-weight:600}
V .lm-bar{display:inline-block;width:110px;height:6px;border-radius:3px;background:var(--track);overflow:hidden}
V .lm-bar>span{display:block;height:100%;border-radius:3px;background:var(--accent)}
V .lm-bar.lm-wide{display:block;width:100%;height:8px;margin:2px 0 10px}
V .lm-bar.lm-small{width:44px;height:4px}
V .lm-bar.lm-bad>span{background:var(--bad)}
V mark{background:var(--mark);color:inherit;border-radius:3px;padding:0 1px}
V .lm-signals{display:flex;flex-wrap:wrap;gap:1px 14px;margin-top:5px;font-size:11px;color:var(--dim)}
V .lm-signals>span{display:inline-flex;align-items:center;gap:5px;font-variant-numeric:tabular-nums}
V .lm-pair{display:grid;grid-template-columns:70px minmax(0,1fr);gap:3px 12px;margin:0}
V .lm-pair dt{color:var(--dim);font-size:12px;line-height:21px;font-weight:400;margin:0;padding:0}
V .lm-pair dd{margin:0;padding:0;white-space:pre-wrap}
V .lm-hit:last-child,V .lm-turn:last-child{padding-bottom:0}
V .lm-note:last-child,V .lm-score:last-child{margin-bottom:0}
V style+.lm-note{margin-top:0}
V .lm-good{color:var(--good);font-weight:600}
V .lm-refused{color:var(--bad);font-weight:600}
V .lm-figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(96px,1fr));gap:8px 14px}
V .lm-figures b{display:block;font-size:18px;line-height:1.3;font-weight:600;font-variant-numeric:tabular-nums}
V .lm-figures span{font-size:12px;color:var(--dim)}
V .lm-zero b{color:var(--dim);font-weight:400}
V table{border-collapse:collapse;width:100%;margin:0;font-size:13px;background:none;color:inherit;border:0;
table-layout:auto}
V tr{background:none!important}
V th{color:var(--dim);font-weight:400;font-size:12px;border-bottom:1px solid var(--line)}
V td{color:inherit}
V th,V td{text-align:left;vertical-align:top;padding:4px 14px 4px 0;white-space:pre-wrap;max-width:340px}
V td.lm-short{white-space:nowrap}
V td.lm-number,V th.lm-number{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
@media(max-width:520px){V .lm-turn,V .lm-pair{grid-template-columns:1fr}
V .lm-who .lm-dim{display:inline;margin-left:8px}}
"""


def _style_sheet() -> str:
    light, dark = (",".join(f"{host} .langmem-view" for host in hosts) for hosts in zip(*_HOSTS, strict=True))
    themes = (
        f".langmem-view{{{_LIGHT_COLORS}}}"
        f"@media(prefers-color-scheme:dark){{.langmem-view{{{_DARK_COLORS}}}}}"
        f"{light}{{{_LIGHT_COLORS}}}{dark}{{{_DARK_COLORS}}}"
    )
    rules = _RULES.replace("\n", "").replace("V ", ".langmem-view ").replace("V{", ".langmem-view{")
    return themes + rules


STYLE = _style_sheet()
