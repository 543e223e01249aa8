# The manual: pages of src/manual, and what tables, headers, docstrings and other pages say. Included by the Makefile.

.PHONY: docs check-docs check-words
$(call needs,docs,docs check-docs)

# assemble.py writes Sphinx's sources to build/gen/manual. Warnings are errors.
MANUAL_ENV = PYTHONPATH=$(abspath $(BUILD))/python MHA_LIBRARY=$(abspath $(BUILD))/libmha.so PYTHONDONTWRITEBYTECODE=1
docs: $(BUILD)/mha python ## writes the manual, a folder of plain pages: build/manual/index.html
	$(call say,GEN,$(BUILD)/manual)
	@rm -rf $(BUILD)/gen/manual $(BUILD)/manual
	$(Q)$(MANUAL_ENV) $(PYTHON) src/manual/assemble.py $(BUILD)/gen/manual $(BUILD)/mha
	$(Q)$(BUILD)/mha params --preset gpt2 --quiet --picture $(BUILD)/gen/manual/pictures/gpt2.svg
	$(Q)$(BUILD)/mha bench --shape bert1x512 --rounds 2 --seconds 1 --quiet \
	  --picture $(BUILD)/gen/manual/pictures/bench.svg
	$(Q)$(MANUAL_ENV) $(PYTHON) -m sphinx -q -W --keep-going -j auto -c src/manual -d $(BUILD)/gen/manual.trees \
	  $(BUILD)/gen/manual $(BUILD)/manual
	@rm -rf $(BUILD)/manual/.buildinfo $(BUILD)/manual/.doctrees
	@mkdir $(BUILD)/manual/weights && cp -r weights/lookup weights/induction $(BUILD)/manual/weights/
	@echo "$(BUILD)/manual/index.html: $$(find $(BUILD)/manual -name '*.html' | wc -l) pages"

check-words: ## prose has no unclear phrase
	$(Q)$(PYTHON) src/manual/words.py

check-docs: docs check-words ## clear prose, every public name, working links, pages that need nothing from elsewhere
	$(Q)$(MANUAL_ENV) $(PYTHON) src/manual/check.py $(BUILD)/manual
