"""The JSON Schema of descriptions (src/models/architectures/schema.json): built-in ones obey it, and where it refuses
one, so does the library."""
import copy
import json
import pathlib
import re

import mha
import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "src/models/architectures"
SCHEMA = json.loads((FOLDER / "schema.json").read_text())
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}
KNOWN = {"$schema", "title", "description", "$defs", "type", "enum", "pattern", "minimum", "required", "properties",
         "additionalProperties", "propertyNames", "minProperties", "maxProperties", "dependentRequired", "items",
         "anyOf", "oneOf", "$ref"}


def obeys(value, schema):
    """Whether a value obeys a schema, as far as draft 2020-12 is used here; the package jsonschema is not needed."""
    assert set(schema) <= KNOWN
    if "$ref" in schema:
        return obeys(value, SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")])
    types = schema.get("type", list(TYPES))
    is_a = lambda name: isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))
    holds = any(is_a(name) for name in ([types] if isinstance(types, str) else types))
    holds &= "enum" not in schema or any(type(x) is type(value) and x == value for x in schema["enum"])
    for name, count in (("anyOf", (1, 9)), ("oneOf", (1, 1))):
        holds &= name not in schema or count[0] <= sum(obeys(value, x) for x in schema[name]) <= count[1]
    if isinstance(value, str):
        holds &= re.search(schema.get("pattern", ""), value) is not None
    if isinstance(value, (int, float)):
        holds &= value >= schema.get("minimum", value)
    if isinstance(value, list):
        holds &= all(obeys(x, schema.get("items", {})) for x in value)
    if isinstance(value, dict):
        holds &= set(schema.get("required", ())) <= set(value)
        holds &= schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value))
        holds &= all(set(needed) <= set(value) for x, needed in schema.get("dependentRequired", {}).items()
                     if x in value)
        other, own = schema.get("additionalProperties", True), schema.get("properties", {})
        for name, x in value.items():
            rule = own.get(name, other)
            holds &= rule is not False and (rule is True or obeys(x, rule))
            holds &= obeys(name, schema.get("propertyNames", {}))
    return holds


DESCRIPTIONS = {path.stem: json.loads(path.read_text()) for path in FOLDER.glob("*.json") if path.name != "schema.json"}


def test_built_in_descriptions_obey():
    assert len(DESCRIPTIONS) > 70
    assert [name for name, text in DESCRIPTIONS.items() if not obeys(text, SCHEMA)] == []


def at(text, *path):
    for step in path[:-1]:
        text = text[step]
    return text, path[-1]


ROWS = ("tensors", "layers", "rows", 0)
SET = [((), "colour", 1), (("title",), None, 3), (("symbols", "h"), None, {"key": "k"}), (("symbols", "h"), None, 4),
       (("symbols", "h"), None, {"key": "k", "default": 1, "value": 1}), (("symbols", "h"), None, {"value": 1.5}),
       (("symbols", "h"), None, {"value": 1, "members": True}),
       (("symbols",), "a_name_of_over_23_letters", {"value": 1}), (("numbers",), "theta", {"value": 1}),
       (("numbers",), "softcap", {"value": -1}), (("classes",), None, {}),
       (("classes", "OwnModel"), None, 1), (("tensors",), None, {}), ((*ROWS, "group"), None, "heads"),
       ((*ROWS, "name"), None, 1), (ROWS, "buffer", "I32"), (ROWS, "kind", "x"), (("attention", 0), "own", 3),
       (("attention", 0), "own", {"window": 3}), (("attention", 0), "colour", 3), ((), "attention", {}),
       ((), "refused", [{"when": "1"}]), ((), "not_run", [{"when": 1, "why": "x"}])]
GONE = [("title",), ("symbols",), ("symbols", "d_k"), ("classes",), ("tensors",), (*ROWS, "shape"), ("attention",),
        ("attention", 0, "prefix"), ("tensors", "layers", "rows")]
OWN = {"title": "Own", "symbols": {"d_model": {"key": "hidden_size", "default": 8}, "h": {"value": 2}, "h_kv":
       {"value": "h"}, "d_k": {"value": "d_model/h"}}, "numbers": {}, "classes": {"OwnModel": ""},
       "tensors": {"layers": {"rows": [{"name": "q", "shape": "8, 8", "group": "attention", "role": "W_Q"}]}},
       "attention": [{"prefix": "l"}]}


def changed(change):
    text = copy.deepcopy(OWN)
    if change in SET:
        path, field, value = change
        place, last = at(text, *path, field) if field else at(text, *path)
        place[last] = value
    elif change:
        place, last = at(text, *change)
        del place[last]
    return text


@pytest.mark.parametrize("change", [None, *SET, *GONE], ids=str)
def test_schema_and_library_agree(change, tmp_path):
    text = changed(change)
    file = tmp_path / "own.json"
    file.write_text(json.dumps(text))
    assert obeys(text, SCHEMA) == (change is None)
    if change:
        with pytest.raises(mha.Error, match="own.json"):
            mha.Model.from_config({"hidden_size": 8}, architecture=file)
    else:
        assert mha.Model.from_config({"hidden_size": 8}, architecture=file).totals.parameters == 64


def test_numbers_are_settings_and_three_more():
    real = {name for name, row in mha.core.settings.ROWS.items() if row.kind == "real"}
    numbers = set(SCHEMA["properties"]["numbers"]["propertyNames"]["enum"])
    assert numbers - real == {"query_scale", "rope_local_base", "scale_square"}


@pytest.mark.needs("jsonschema")
def test_the_schema_itself():
    import jsonschema

    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    validator = jsonschema.Draft202012Validator(SCHEMA)
    assert validator.is_valid(DESCRIPTIONS["phi3"])
    for change in (None, *SET, *GONE):
        assert validator.is_valid(changed(change)) == (change is None)
